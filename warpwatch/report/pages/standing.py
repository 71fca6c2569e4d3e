"""How each workload stands on a machine: its time over commits, the best peer, what is possible.

Where nothing is a time, other values that have a direction stand in its place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from markupsafe import Markup, escape

from warpwatch.judge.model.core import Change, SeriesKey
from warpwatch.judge.results.history import SeriesInfo, Table
from warpwatch.judge.results.result_file import Floats
from warpwatch.judge.series.changes import kind
from warpwatch.report import words
from warpwatch.report.charts.roofs import SECONDS, device_of
from warpwatch.report.charts.stand import Line, stand_chart
from warpwatch.report.rendering import machine_path
from warpwatch.report.view import View

from . import utilization
from .peers import METRIC

Side = Literal["ahead", "behind", "level"]
Bounds = Mapping[str, float]  # in µs, by commit

_BOUND = "bound_us"
_MOST_CARDS = 12
MOST_LISTED, _LEAST_OF_A_KERNEL = 200, 2
_LEVEL = 0.01  # of a ratio whose interval nobody kept


@dataclass(frozen=True)
class Rival:
    """The fastest peer at the newest commit that timed one: its time over ours, and what that is.

    ``between`` are the ratios that the intervals of both allow, empty where none was kept.
    """

    name: str
    key: SeriesKey
    ratio: float
    between: str
    side: Side
    commit: str


@dataclass(frozen=True)
class Limit:
    """The least time that is possible, in the unit of the series, and who says so."""

    name: str
    now: float
    values: Floats


@dataclass(frozen=True)
class Standing:
    """One workload on one machine. ``share`` is the limit over the time, in percent."""

    table: Table
    row: int
    kernel: str
    now: float
    rival: Rival | None
    limit: Limit | None
    last: Change | None

    @property
    def info(self) -> SeriesInfo:
        """The series of its time, or of another value."""
        return self.table.series[self.row]

    @property
    def text(self) -> str:
        """The newest value."""
        return words.quantity(self.now, self.info.meaning.unit)

    @property
    def timed(self) -> bool:
        """Whether it is a time."""
        return self.info.meaning.unit in SECONDS

    @property
    def share(self) -> float | None:
        """How much of what is possible it reaches, in percent."""
        return None if self.limit is None else 100 * self.limit.now / self.now


@dataclass(frozen=True)
class Card:
    """A workload and its chart; of how many ``alike`` it is one, and on which ``sides`` of their
    peers those are."""

    one: Standing
    chart: Markup
    alike: int
    home: str
    sides: tuple[tuple[Side, int], ...]


@dataclass(frozen=True)
class Overview:
    """What the index says of kernels: counts, then a chart for each kernel and for workloads whose
    peer is fastest."""

    cards: tuple[Card, ...]
    ahead: int
    behind: int
    level: int
    alone: int
    least: float
    most: float
    more: int
    limits: tuple[str, ...]
    shown: str

    @property
    def raced(self) -> int:
        """How many workloads were timed next to a peer."""
        return self.ahead + self.behind + self.level


def of(view: View, table: Table) -> list[Standing]:
    """The workloads of one table that have a time, those with a peer first."""
    timed = _timed(table)
    bounds = _bounds(view, table) if table.machine else {}
    target = utilization.target_of(view, table) if bounds else ""
    peers: dict[str, list[int]] = {}
    for row, info in enumerate(table.series):
        if table.machine and info.target and info.meaning.metric == METRIC:
            peers.setdefault(info.workload, []).append(row)
    found = []
    for row in timed:
        info, now = table.series[row], table.latest(row)
        if now is None or now <= 0:
            continue
        changes = view.judgement.by_series.get(info.key, ())
        moved = [one for one in changes if kind(one) != "gained"]
        limit = _limit(view, table, row, bounds.get((info.workload, target)))
        rival = _rival(table, row, peers.get(info.workload, ()))
        last = moved[-1] if moved else None
        found.append(Standing(table, row, _kernel(info), now, rival, limit, last))
    return sorted(found, key=lambda one: one.rival is None)


def overview(view: View) -> Overview | None:
    """Of every table; ``None`` where nothing has a direction."""
    everyone = [one for table in _shown_tables(view) for one in of(view, table)]
    if not everyone:
        return None
    raced = [one for one in everyone if one.rival is not None]
    kernels: dict[tuple[str, str, str], list[Standing]] = {}
    for one in everyone:
        kernels.setdefault(_place(one), []).append(one)
    # A chart for each kernel, so that none fills the screen; then where a peer is fastest.
    by_size = sorted(kernels.items(), key=lambda item: (-len(item[1]), item[0]))
    chosen = [max(members, key=_telling) for _, members in by_size[:_MOST_CARDS]]
    rest = sorted(raced, key=lambda one: (_ratio(one), one.info.workload))
    chosen += [one for one in rest if one not in chosen][: _MOST_CARDS - len(chosen)]
    cards = []
    for one in chosen:
        members = kernels[_place(one)]
        home = machine_path(one.table.machine, one.table.environment)
        cards.append(Card(one, chart(view, one), len(members), home, _sides(members)))
    sides = dict(_sides(everyone))
    ratios = [_ratio(one) for one in raced] or [math.nan]
    return Overview(
        tuple(cards),
        ahead=sides.get("ahead", 0),
        behind=sides.get("behind", 0),
        level=sides.get("level", 0),
        alone=len(everyone) - len(raced),
        least=min(ratios),
        most=max(ratios),
        more=len(everyone) - len(cards),
        limits=tuple(dict.fromkeys(one.limit.name for one in chosen if one.limit)),
        shown=words.shown(
            [one.info.target for one in chosen if one.info.meaning.metric == _BOUND],
            is_time=any(one.timed for one in chosen),
        ),
    )


def by_kernel(standings: Sequence[Standing]) -> list[tuple[str, list[Standing], int]]:
    """Each kernel, the workloads of it that a page lists, and how many it has: of many workloads
    those that tell most, so that no kernel is left out."""
    found: dict[str, list[Standing]] = {}
    for one in standings:
        found.setdefault(one.kernel, []).append(one)
    count = len(standings)
    if count > MOST_LISTED:
        count = max(MOST_LISTED // len(found), _LEAST_OF_A_KERNEL)
    telling = {
        name: members if len(members) <= count else sorted(members, key=_telling)[::-1][:count]
        for name, members in found.items()
    }
    return [(name, telling[name], len(found[name])) for name in sorted(found)]


def chart(view: View, one: Standing) -> Markup:
    """Its time, that of the best peer, and the least that is possible, over commits."""
    table, unit = one.table, one.info.meaning.unit
    name = "this package" if one.rival else "time" if one.timed else "value"
    lines = [Line(name, "own", table.values[one.row])]
    if one.rival is not None:
        row = view.judgement.places[one.rival.key][1]
        lines.append(Line(one.rival.name, "peer", table.values[row]))
    if one.limit is not None:
        lines.append(Line(one.limit.name, "limit", one.limit.values))
    marks = [
        (table.column_of(change.first_commit), change.verdict)
        for change in view.judgement.by_series.get(one.info.key, ())
        if change.verdict != "unchanged"
    ]
    said = [f"{len(table.commits)} commits"]
    for line in lines:
        finite = line.values[np.isfinite(line.values)]
        if len(finite):
            said.append(f"{line.name} {words.quantity(float(finite[-1]), unit)}")
    known = [(column, verdict) for column, verdict in marks if column is not None]
    return stand_chart(lines, known, str(escape(", ".join(said))))


def _shown_tables(view: View) -> Iterator[Table]:
    """Machines that timed calls; without one, whatever machines measured, else compiled tables."""
    tables = view.judgement.history.tables
    measured = [table for table in tables if table.machine]
    timed = [
        table for table in measured if any(one.meaning.metric == METRIC for one in table.series)
    ]
    yield from timed or measured or tables


def _timed(table: Table) -> list[int]:
    """The rows of times: cold latencies where there are some, else bounds of compiled code at the
    target that most have, else whatever a project times, else whatever has a direction."""
    infos = list(enumerate(table.series))
    cold = [r for r, one in infos if one.meaning.metric == METRIC and not one.target]
    if cold and table.machine:
        return cold
    bounds = [(r, one.target) for r, one in infos if one.meaning.metric == _BOUND]
    if bounds:
        names = [target for _, target in bounds]
        most = min(set(names), key=lambda name: (-names.count(name), name))
        return [row for row, target in bounds if target == most]
    counting = [(r, one.meaning) for r, one in infos if one.meaning.role == "verdict"]
    times = [r for r, one in counting if one.better == "lower" and one.unit in SECONDS]
    return times or [r for r, one in counting if one.better]


def _bounds(view: View, table: Table) -> Mapping[tuple[str, str], Bounds]:
    """The compiled bound on the time, by workload and target: of the compiled series, and of
    commits that they lack of the evidence that is kept with the results of this machine."""
    found = utilization.kept(view, table, _BOUND)
    for other in view.judgement.history.tables:
        if other.machine:
            continue
        for row, info in enumerate(other.series):
            if info.meaning.metric == _BOUND:
                laid = found.setdefault((info.workload, info.target), {})
                for column in np.flatnonzero(np.isfinite(other.values[row])).tolist():
                    laid[other.commits[column].hash] = float(other.values[row, column])
    return found


def _limit(view: View, table: Table, row: int, bound: Bounds | None) -> Limit | None:
    """The bound of the compiled code, commit by commit; where it was not compiled, or a call took
    less, the roof that the datasheet sets to the work of a call."""
    info = table.series[row]
    scale = SECONDS.get(info.meaning.unit)
    if scale is None or not table.machine:
        return None
    if bound:  # looked up for each commit, which takes long where thousands of calls have none
        of_commits = [bound.get(commit.hash, math.nan) for commit in table.commits]
        laid = np.array(of_commits) * 1e-6 / scale
        timed = np.isfinite(table.values[row])
        if not (table.values[row, timed] < laid[timed]).any():
            measured = laid[np.isfinite(laid) & timed]
            known = measured if len(measured) else np.array([*bound.values()]) * 1e-6 / scale
            return Limit("predicted bound", float(known[-1]), laid)
    work = info.work
    device = device_of(table, info, work) if work is not None else None
    if work is None or device is None:
        return None
    compute = work.flops / (work.peaks_tflops[device] * 1e12)
    memory = work.bytes_moved / (work.bandwidths_gbps[device] * 1e9)
    least = max(compute, memory) / scale
    return Limit("datasheet roof", least, np.full(len(table.commits), least))


def _rival(table: Table, own: int, peers: Sequence[int]) -> Rival | None:
    """Of the newest commit at which both were timed; the fastest there, most of the peers first."""
    if not peers:
        return None
    values = table.values[[own, *peers]]
    with np.errstate(invalid="ignore"):
        timed = np.isfinite(values) & (values > 0)
    both = timed[0] & timed[1:].any(axis=0)
    if not both.any():
        return None
    # A commit that timed every peer says more than a newer one that timed the slowest.
    counts = np.where(both, timed[1:].sum(axis=0), 0)
    column = int(np.flatnonzero(counts == counts.max())[-1])
    row = min((peer for peer in peers if np.isfinite(values[1 + peers.index(peer), column])),
              key=lambda peer: float(table.values[peer, column]))  # fmt: skip
    newer = np.flatnonzero(both & timed[1 + peers.index(row)])
    column = int(newer[-1])
    ratio = float(table.values[row, column] / table.values[own, column])
    low = float(table.low[row, column]) / float(table.high[own, column] or math.nan)
    high = float(table.high[row, column]) / float(table.low[own, column] or math.nan)
    known = math.isfinite(low) and math.isfinite(high) and 0 < low <= high
    edges = (low, high) if known else (ratio - _LEVEL, ratio + _LEVEL)
    side: Side = "ahead" if edges[0] > 1 else "behind" if edges[1] < 1 else "level"
    info = table.series[row]
    between = f"{low:.2f} to {high:.2f}" if known else ""
    return Rival(info.target, info.key, ratio, between, side, table.commits[column].hash)


def _kernel(info: SeriesInfo) -> str:
    """What groups workloads: the class that asv measures them with, else its module."""
    return info.key.benchmark.rpartition(".")[0] or info.key.benchmark


def _place(one: Standing) -> tuple[str, str, str]:
    return one.table.machine, one.table.environment, one.kernel


def _sides(members: Sequence[Standing]) -> tuple[tuple[Side, int], ...]:
    """How many are on each side of their best peer, sides without any left out."""
    found = [one.rival.side for one in members if one.rival is not None]
    every: tuple[Side, ...] = ("ahead", "level", "behind")
    return tuple((side, found.count(side)) for side in every if side in found)


def _telling(one: Standing) -> tuple[bool, int, int, str]:
    """Of a kernel a workload with a peer is shown, of those the one measured most often, of those
    the one changed last."""
    changed = one.table.column_of(one.last.first_commit) if one.last else None
    measured = int(np.isfinite(one.table.values[one.row]).sum())
    return one.rival is not None, measured, -1 if changed is None else changed, one.info.workload


def _ratio(one: Standing) -> float:
    return one.rival.ratio if one.rival else math.inf
