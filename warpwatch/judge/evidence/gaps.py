"""Which values a commit lacks because nobody asked for them: gaps, and no losses.

asv has one word, NaN, for what does not apply and for what a run was told to leave out, by a
pattern or by a smaller set of workloads. Who measured knows which: where evidence lies beside the
results, what it does not list was not asked for. Where none lies, asv's own habit says a little:
of a benchmark that nobody asked for there is no row, so a row of nothing but NaN was asked for;
a NaN beside values may be either and alarms nobody. What fails is null and is never a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from warpwatch.judge.results.history import UNASKED, History, Table
from warpwatch.judge.results.result_file import ABSENT

from .lookup import NOT_APPLICABLE, Evidence

Rows = NDArray[np.bool_]
Name = TypeVar("Name", bound=Hashable)


def leave_gaps(history: History, evidence: Evidence) -> History:
    """The same history with gaps where nobody asked for a value: absent, and said to be unasked."""
    return replace(history, tables=tuple(_with_gaps(one, evidence) for one in history.tables))


def _with_gaps(table: Table, evidence: Evidence) -> Table:
    said_nothing, absent = np.isnan(table.values), table.values == ABSENT
    known = _Known(table, evidence)
    gaps = np.zeros(table.values.shape, dtype=bool)
    for column in np.flatnonzero((said_nothing | absent).any(axis=0)).tolist():
        nothing, no_row = said_nothing[:, column], absent[:, column]
        entry = ~(nothing | no_row)
        gap = nothing & known.benchmarks.any(entry)
        # Compiled evidence takes long to read, and nobody looks at rows that are not there.
        if not known.compiled or nothing.any():
            spoken_of, listed, asked = known.of(column, entry)
            gap = np.where(spoken_of, (nothing & ~asked) | (no_row & ~listed), gap)
        gaps[:, column] = gap
    if not gaps.any():
        return table
    return replace(
        table,
        values=np.where(gaps, ABSENT, table.values),
        methods=np.where(gaps, np.int32(UNASKED), table.methods),
    )


class _Known:
    """What evidence says of the series of one table."""

    def __init__(self, table: Table, evidence: Evidence):
        self._table, self._evidence = table, evidence
        self.compiled = not table.machine
        self.benchmarks = _Groups(info.key.benchmark for info in table.series)
        self._subjects = _Groups((info.workload, info.target) for info in table.series)
        self._instruments = _Groups(info.meaning.instrument for info in table.series)

    def of(self, column: int, entry: Rows) -> tuple[Rows, Rows, Rows]:
        """Of which series evidence of the column's commit speaks, which of them it lists, and which
        were asked for: listed as not applicable, or with an entry of any metric.

        What is listed as measured and has no entry at all was measured by another run, on another
        machine or of other patterns, whose evidence this is.
        """
        commit = self._table.commits[column].hash
        if self.compiled:
            triton = self._table.environment.removeprefix("triton ")
            statuses = self._evidence.statuses(commit, triton)
            spoken_of = np.full(len(entry), bool(statuses))
        else:
            kept = self._evidence.asked(commit)
            # A peer is a target to the report, and a workload "NAME @ PEER" to who measured it.
            pairs = ((name.partition(" @ "), status) for name, status in kept.statuses.items())
            statuses = {(name, peer): status for (name, _, peer), status in pairs}
            spoken_of = self._instruments.where(kept.instruments.__contains__)
            spoken_of &= bool(statuses)
        listed = self._subjects.where(statuses.__contains__)
        lacking = self._subjects.where(lambda pair: statuses.get(pair) == NOT_APPLICABLE)
        return spoken_of, listed, listed & (lacking | self._subjects.any(entry & spoken_of))


class _Groups(Generic[Name]):
    """Series by something they have in common."""

    def __init__(self, names: Iterable[Name]):
        self._names: dict[Name, int] = {}
        numbers = [self._names.setdefault(name, len(self._names)) for name in names]
        self._of = np.array(numbers, dtype=np.intp)

    def any(self, rows: Rows) -> Rows:
        """The series of every group of which some are among ``rows``."""
        found: Rows = np.bincount(self._of, rows, len(self._names))[self._of] > 0
        return found

    def where(self, holds: Callable[[Name], bool]) -> Rows:
        """The series of every group whose name ``holds``."""
        found: Rows = np.array([holds(name) for name in self._names], dtype=bool)[self._of]
        return found
