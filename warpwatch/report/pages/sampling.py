"""How sure measured times are: what their instrument says against them, by series and by commit."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from warpwatch.judge.evidence.measured import CardState, Sampling
from warpwatch.judge.model.core import Commit
from warpwatch.judge.results.history import SeriesInfo, Table
from warpwatch.report import words
from warpwatch.report.view import View

COUNTERS = ("cupti", "ncu", "rocprofv3")
INSTRUMENT = "latency"  # which keeps what speaks against its values
# Derived from the samples of another metric.
_FROM = {"peak_share": "latency_cold"}
_TIMES = ("latency_cold", "latency_warm")
_MOST_NAMED = 40
_EQUAL = 1e-6

Flag = Literal["unstable", "wide", "throttled", "set_apart", "timed_out"]
FLAGS: tuple[Flag, ...] = ("unstable", "wide", "throttled", "set_apart", "timed_out")


@dataclass(frozen=True)
class Counts:
    """Of the times of one machine at one commit: how many there are, of how many evidence was kept
    (``known``), what speaks against how many of them, the first that are unstable, and what gave
    the utilization beside them (nothing where that was not kept)."""

    commit: Commit
    times: int
    known: int
    unstable: int
    wide: int
    throttled: int
    set_apart: int
    timed_out: int
    named: tuple[tuple[SeriesInfo, str], ...]
    tier: str


def read_ahead(view: View) -> None:
    """Reads the evidence that pages show, before processes that draw are forked: each would read it
    again."""
    evidence = view.judgement.evidence
    if evidence.listing():
        for table in view.judgement.history.tables:
            for row, info in enumerate(table.series):
                if table.machine and info.meaning.instrument == INSTRUMENT:
                    for column in newest(view, table, row):
                        evidence.states(table.commits[column].hash)


def of(view: View, table: Table, row: int, column: int) -> Sampling | None:
    """What was kept of how one value was sampled."""
    info, commit = table.series[row], table.commits[column]
    metric = _FROM.get(info.meaning.metric, info.meaning.metric)
    # A peer is a target to the report, and a workload "NAME @ PEER" to who measured it.
    name = f"{info.workload} @ {info.target}" if info.target else info.workload
    state = view.judgement.evidence.states(commit.hash).get((name, metric))
    if state is None:
        return None
    timed = view.rows_of(table, metric).get((info.workload, info.target))
    return state.sampling if timed is None or _is_of(state, table, timed, column) else None


def _is_of(state: CardState, table: Table, row: int, column: int) -> bool:
    """Whether a time is the median of the samples that were kept: another machine may have measured
    the same commit, and one folder has one file for it."""
    if not state.us or table.series[row].meaning.unit != "us":
        return True
    value = float(table.values[row, column])
    return abs(statistics.median(state.us) - value) <= _EQUAL * value


def said(view: View, table: Table, row: int) -> tuple[str, ...]:
    """Of a series' newest values, newest first, what speaks against each. Nothing at all where no
    instrument that would say so measured it, or where nothing was kept of any."""
    info = table.series[row]
    if info.meaning.instrument != INSTRUMENT or not table.machine:
        return ()
    columns = newest(view, table, row)
    found = [of(view, table, row, column) for column in columns]
    if not any(found):
        return ()
    return tuple(
        (words.UNKNOWN if one is None else one.said or words.NOTHING)
        if np.isfinite(table.values[row, column])
        else ""
        for column, one in zip(columns, found, strict=True)
    )


def newest(view: View, table: Table, row: int) -> list[int]:
    """The columns of the values that the page of a series lists, newest first."""
    columns: list[int] = table.present(row)[::-1][: view.detail.values].tolist()
    return columns


def counts(view: View, table: Table) -> list[Counts]:
    """Of the newest commits with times of which evidence was kept, newest first."""
    found = (_at(view, table, column) for column in _newest(view, table))
    return [one for one in found if one.known]


def _newest(view: View, table: Table) -> Sequence[int]:
    """The newest columns with a time."""
    rows = _times(table)
    columns = np.flatnonzero(np.isfinite(table.values[rows]).any(axis=0))
    found: list[int] = columns[::-1][: view.detail.values].tolist()
    return found


def _times(table: Table) -> list[int]:
    if not table.machine:
        return []
    return [
        row
        for row, info in enumerate(table.series)
        if info.meaning.instrument == INSTRUMENT and info.meaning.metric in _TIMES
    ]


def instrument(view: View, table: Table, row: int) -> str:
    """Who read the newest value: one description of a benchmark serves all machines and names
    ``cupti`` for counters, which the evidence knows to be another's, as on AMD."""
    named, present = table.series[row].meaning.instrument, table.present(row)
    if named not in COUNTERS or not len(present):
        return named
    counted = view.judgement.evidence.asked(table.commits[present[-1]].hash).counted
    return counted.tier if counted and counted.tier in COUNTERS else named


def _at(view: View, table: Table, column: int) -> Counts:
    commit = table.commits[column]
    times = [row for row in _times(table) if np.isfinite(table.values[row, column])]
    found = [(table.series[row], of(view, table, row, column)) for row in times]
    known = [(info, one) for info, one in found if one is not None]
    number = {flag: sum(bool(getattr(one, flag)) for _, one in known) for flag in FLAGS}
    named = tuple((info, one.said) for info, one in known if one.unstable)
    counted = view.judgement.evidence.asked(commit.hash).counted
    tier = counted.tier if counted else ""
    return Counts(commit, len(times), len(known), **number, named=named[:_MOST_NAMED], tier=tier)
