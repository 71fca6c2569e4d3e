"""A workload's time beside that of its peers, commit by commit, and what follows from one time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from warpwatch.judge.model.core import Commit
from warpwatch.judge.results.history import Table
from warpwatch.report import words
from warpwatch.report.view import View

METRIC = "latency_cold"  # of which peers are timed, too
_MICROSECONDS = "us"


@dataclass(frozen=True)
class Lap:
    """One commit: our time, that of each peer (a dash where it was not timed there), who of them is
    the fastest, and its time over ours with what the intervals of both allow."""

    commit: Commit
    ours: str
    peers: tuple[str, ...]
    fastest: str
    ratio: str
    between: str


@dataclass(frozen=True)
class Race:
    """The newest commits at which we and a peer were timed, and how many more those are. Where
    there is none, ``why`` says so."""

    peers: tuple[str, ...] = ()
    laps: tuple[Lap, ...] = ()
    left: int = 0
    why: str = ""


@dataclass(frozen=True)
class Rate:
    """What one newest time means: operations and bytes of the work itself, a second."""

    name: str
    tflops: str
    gbps: str


def race(view: View, members: Sequence[tuple[Table, int]]) -> Race | None:
    """Of the series of one workload on one machine; ``None`` where nothing of ours was timed."""
    table, own, peers = _timed(members)
    if table is None:
        return None
    if not peers:
        return Race(why="No peer was timed beside it here")
    values = table.values[[own, *peers.values()]]
    with np.errstate(invalid="ignore"):
        timed = np.isfinite(values) & (values > 0)
    columns = np.flatnonzero(timed[0] & timed[1:].any(axis=0))[::-1].tolist()
    if not columns:
        return Race(why="No peer was timed at a commit at which this was")
    names = tuple(peers)
    laps = tuple(_lap(table, column, own, peers) for column in columns[: view.detail.values])
    return Race(names, laps, len(columns) - len(laps))


def rates(members: Sequence[tuple[Table, int]]) -> tuple[Rate, ...]:
    """Ours and each peer's, from the newest time of each; all do the same work."""
    table, own, peers = _timed(members)
    work = table.series[own].work if table is not None else None
    if table is None or work is None or table.series[own].meaning.unit != _MICROSECONDS:
        return ()
    found = []
    for name, row in {"": own, **peers}.items():
        us = table.latest(row)
        if us is not None and us > 0:
            tflops, gbps = work.flops / us / 1e6, work.bytes_moved / us / 1e3
            found.append(Rate(name, words.number(tflops), words.number(gbps)))
    return tuple(found)


def memory(members: Sequence[tuple[Table, int]]) -> tuple[str, str, str] | None:
    """Bytes of our call beyond its inputs, those of the formula written out, and how many times as
    many the latter are; ``None`` where either is not known."""
    table, own, _ = _timed(members)
    work = table.series[own].work if table is not None else None
    if work is None or work.formula_bytes is None:
        return None
    for home, row in members:
        info = home.series[row]
        if home is table and info.meaning.metric == "peak_bytes" and not info.target:
            found = home.latest(row)
            if found is not None and found > 0:
                ours, theirs = (words.quantity(n, "bytes") for n in (found, work.formula_bytes))
                return ours, theirs, f"{work.formula_bytes / found:,.3g}"
    return None


def _timed(members: Sequence[tuple[Table, int]]) -> tuple[Table | None, int, dict[str, int]]:
    """The table and row of our time, and by name the rows of the peers'."""
    home, own, peers = None, -1, {}
    for table, row in members:
        info = table.series[row]
        if info.meaning.metric != METRIC or not table.machine:
            continue
        if info.target:
            peers[info.target] = row
        else:
            home, own = table, row
    return home, own, dict(sorted(peers.items()))


def _lap(table: Table, column: int, own: int, peers: dict[str, int]) -> Lap:
    unit = table.series[own].meaning.unit
    ours = float(table.values[own, column])
    times = {name: float(table.values[row, column]) for name, row in peers.items()}
    timed = {name: time for name, time in times.items() if math.isfinite(time) and time > 0}
    fastest = min(timed, key=lambda name: timed[name])
    rival = peers[fastest]
    low = float(table.low[rival, column]) / float(table.high[own, column] or math.nan)
    high = float(table.high[rival, column]) / float(table.low[own, column] or math.nan)
    known = math.isfinite(low) and math.isfinite(high) and 0 < low <= high
    return Lap(
        table.commits[column],
        words.quantity(ours, unit),
        tuple(words.quantity(timed.get(name), unit) for name in peers),
        fastest,
        _ratio(timed[fastest] / ours),
        f"{_ratio(low)} to {_ratio(high)}" if known else "",
    )


def _ratio(value: float) -> str:
    return f"{value:.3f}" if 1e-3 <= value < 1e4 else words.number(value)
