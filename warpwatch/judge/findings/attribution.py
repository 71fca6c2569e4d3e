"""What a finding is blamed on, and why: from peers, borders, code identity and the card's clock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from warpwatch.judge.evidence.lookup import Evidence
from warpwatch.judge.model.core import Change
from warpwatch.judge.results.history import History, SeriesInfo, Table
from warpwatch.judge.results.result_file import ABSENT
from warpwatch.judge.series.changes import ends

Cause = Literal["kernel", "dependency", "machine", "harness", "unknown"]

UTILIZATION = ("tensor_pipe", "tensor_pipe_sampled", "peak_share")
# A clock within this is flat: that of an H200 wanders by less while a call repeats.
_FLAT = math.log(1.01)
# No real clock repeats so well: the share was taken at the datasheet's clock, not at its own.
_NO_CLOCK = 1e-4
_POINTS = 5


@dataclass(frozen=True)
class Blame:
    """The cause of a finding and one sentence that says what speaks for it."""

    cause: Cause
    why: str


@dataclass(frozen=True)
class Ranged:
    """A change, the positions that may hold its cause, the likeliest (``at``), and where its
    series is."""

    change: Change
    first: int
    last: int
    at: int
    table: Table
    row: int

    @property
    def info(self) -> SeriesInfo:
        return self.table.series[self.row]

    @property
    def is_over_a_gap(self) -> bool:
        """Whether its series was tried between both levels and had no value, as where it failed."""
        before = self.table.column_of(self.change.last_good)
        after = self.table.column_of(self.change.first_commit)
        if before is None or after is None:
            return False
        between = self.table.values[self.row, before + 1 : after]
        return bool(np.any(~np.isfinite(between) & (between != ABSENT)))


class Attribution:
    """What a history and its evidence say of causes; what is looked up often is kept."""

    def __init__(self, history: History, evidence: Evidence | None = None):
        self._history = history
        self.evidence = evidence
        self._rows: dict[tuple[int, str], list[int]] = {}
        for number, table in enumerate(history.tables):
            for row, info in enumerate(table.series):
                self._rows.setdefault((number, info.workload), []).append(row)
        self._numbers = {id(table): number for number, table in enumerate(history.tables)}

    def blame(self, members: Sequence[Ranged], touched: bool) -> Blame:
        """What changed, as far as the results tell; ``touched``: a commit changed the measured
        code.

        Peers come from no commit: where they moved too, the machine did. An exact instrument has
        no machine in it: where it moved, the code did, if a commit touched the code at all; else
        what compiles it. Equal machine code clears the kernel. Of a time alone, the clock tells:
        where it fell with the time, it was the machine; where it stood still and the tensor cores
        did less, the kernel.
        """
        if any(is_peer(one.info) for one in members):
            return Blame("machine", "a peer that no commit changes moved too")
        if any(one.info.meaning.exact for one in members):
            if touched:
                return Blame("kernel", "an exact metric changed with the measured code")
            return Blame("dependency", "an exact metric changed, but no commit touched the code")
        method = self._method_change(members)
        if self._same_code(members):
            if method:
                return Blame("harness", f"the machine code is the same, and {method}")
            return Blame("machine", "the machine code is the same before and after")
        if method:
            return Blame("harness", method)
        if not touched:
            return Blame("machine", "no commit in the range touches the measured code")
        by_clock = self._by_clock(members)
        if by_clock:
            return by_clock
        if any(one.info.key.machine in self._watched for one in members):
            return Blame("kernel", "the peers beside it held still")
        return Blame("unknown", "no measurement tells the code from the machine")

    @cached_property
    def _watched(self) -> frozenset[str]:
        """The machines on which peers are measured."""
        tables = self._history.tables
        return frozenset(t.machine for t in tables if any(map(is_peer, t.series)))

    def _beside(self, one: Ranged) -> list[int]:
        """The rows of everything measured of a change's workload in its table."""
        return self._rows[self._numbers[id(one.table)], one.info.workload]

    @cached_property
    def _shares(self) -> dict[tuple[int, str], list[int]]:
        """The rows of shares of the peak, by table and workload."""
        found: dict[tuple[int, str], list[int]] = {}
        for number, table in enumerate(self._history.tables):
            for row, info in enumerate(table.series):
                if info.meaning.metric == "peak_share":
                    found.setdefault((number, info.workload), []).append(row)
        return found

    def _method_change(self, members: Sequence[Ranged]) -> str:
        """How the yardstick changed within the range, "" where it did not.

        A change of method in a finding's own series is a border and no finding; that of another
        instrument on the same workload says that the yardstick was worked on just then.
        """
        for one in {(id(one.table), one.info.workload): one for one in members}.values():
            for row in self._beside(one):
                borders, info = one.table.borders(row), one.table.series[row]
                present = one.table.present(row) if borders else ()
                for index in borders:
                    commit = one.table.commits[present[index]]
                    if one.first <= commit.position <= one.last:
                        name = info.meaning.metric or info.key.benchmark
                        return f"the method of {name} changed there"
        return ""

    def _same_code(self, members: Sequence[Ranged]) -> bool:
        evidence = self.evidence
        if evidence is None:
            return False
        known = [
            evidence.same_code(*ends(one.table, one.row, one.change), one.info.workload)
            for one in members
        ]
        return any(known) and all(same is not False for same in known)

    def _by_clock(self, members: Sequence[Ranged]) -> Blame | None:
        """The pair of time and utilization: which of kernel and clock moved."""
        for one in members:
            if one.info.meaning.unit == "cycles":
                more = "more" if one.change.ratio > 1 else "fewer"
                return Blame("kernel", f"it takes {more} cycles, whatever the clock does")
        for one in members:
            time = math.log(one.change.ratio) if 0 < one.change.ratio < math.inf else 0.0
            clock = self._clock_moved(one)
            if not one.info.meaning.metric.startswith("latency") or clock is None or not time:
                continue
            if abs(clock) > _FLAT and clock * time < 0 and abs(clock) > abs(time) / 2:
                return Blame(
                    "machine", f"the clock went {_percent(clock)}, the time {_percent(time)}"
                )
            if abs(clock) <= _FLAT:
                return Blame(
                    "kernel", f"the time went {_percent(time)} at a flat clock ({_percent(clock)})"
                )
        if any(one.info.meaning.metric in UTILIZATION for one in members):
            return Blame("kernel", "its share of the peak moved, whatever the clock does")
        return None

    def _clock_moved(self, one: Ranged) -> float | None:
        """The logarithm of clock after over clock before, ``None`` where no clock is known."""
        evidence = self.evidence
        if evidence is not None:
            key = (one.info.workload, one.info.meaning.metric)
            states = [
                evidence.states(commit).get(key) for commit in ends(one.table, one.row, one.change)
            ]
            clocks = [float(np.median(state.mhz)) for state in states if state and state.mhz]
            if len(clocks) == 2 and min(clocks) > 0:
                return math.log(clocks[1] / clocks[0])
        # The share of the peak is taken at each sample's own clock: with the time, it tells it.
        for row in self._shares.get((self._numbers[id(one.table)], one.info.workload), ()):
            if one.table.series[row].target == one.info.target:
                moved = _ratio_of_products(one, row)
                if moved is not None:
                    return -moved
        return None


def is_peer(info: SeriesInfo) -> bool:
    """Whether a series is an implementation of somebody else, measured beside the workload."""
    return bool(info.key.machine and info.target) and not info.meaning.exact


def _ratio_of_products(one: Ranged, other_row: int) -> float | None:
    table = one.table
    present = table.present(one.row)
    split = one.change.step.index
    levels, every = [], []
    for columns in (present[max(split - _POINTS, 0) : split], present[split : split + _POINTS]):
        products = table.values[one.row, columns] * table.values[other_row, columns]
        products = products[np.isfinite(products) & (products > 0)]
        if not len(products):
            return None
        levels.append(float(np.median(products)))
        every += products.tolist()
    if max(every) / min(every) - 1 < _NO_CLOCK:
        return None
    return math.log(levels[1] / levels[0])


def _percent(log_ratio: float) -> str:
    return f"{100 * math.expm1(log_ratio):+.1f} %"
