"""The history of every series: results of all folders, laid along the commits of the graph.

A table holds the series that are measured together, one matrix with a row a series and a column
a commit: a history of ten thousand series is a few arrays, not millions of objects. ``Series`` of
the model are made one at a time, for whoever looks at one.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from warpwatch.judge.model import bound_terms, short_calls
from warpwatch.judge.model.core import Commit, Point, PointState, Series, SeriesKey
from warpwatch.judge.model.directions import Meaning
from warpwatch.judge.model.work_done import Work
from warpwatch.judge.results.result_file import ABSENT, FAILED, Floats

from .samples import read_samples, read_seconds

Cell = Literal["measured", "failed", "not applicable", "absent"]

# In the place of a benchmark version: the value is absent because no run was asked for it.
UNASKED = -2


@dataclass(frozen=True)
class SeriesInfo:
    """What a series is, without its points."""

    key: SeriesKey
    meaning: Meaning
    workload: str
    target: str
    work: Work | None = None
    # How much the workload matters beside the others, as the project says.
    weight: float = 1.0


@dataclass(frozen=True, eq=False)
class Table:
    """The series of one machine and environment; compiled ones have no machine.

    ``commits`` are its columns, oldest first. ``methods`` says, for every
    series and column, which benchmark version measured it (-1: none, ``UNASKED``: none was to);
    ``platforms`` does so for the driver, image, device and packages of a whole column: where either
    changes, a border is.
    """

    machine: str
    environment: str
    series: tuple[SeriesInfo, ...]
    commits: tuple[Commit, ...]
    values: Floats
    low: NDArray[np.float32]
    high: NDArray[np.float32]
    methods: NDArray[np.int32]
    platforms: NDArray[np.int32]
    platform_names: tuple[str, ...]
    started_ms: NDArray[np.int64]
    machine_fields: dict[str, str]
    # By commit, the files its values come from, newest last: samples stay there until asked for.
    files: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)

    @cached_property
    def _whole(self) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
        """Which rows have an entry in every column, and all the columns."""
        columns = np.arange(len(self.commits))
        columns.flags.writeable = False  # handed out again and again
        return (self.values != ABSENT).all(axis=1), columns

    @cached_property
    def _plain(self) -> NDArray[np.bool_]:
        """Which of the whole rows have no border."""
        steady = not (self.platforms[1:] != self.platforms[:-1]).any()
        same: NDArray[np.bool_] = (self.methods == self.methods[:, :1]).all(axis=1)
        return same & self._whole[0] & steady

    @cached_property
    def exact(self) -> NDArray[np.bool_]:
        """Which rows repeat exactly where nothing changed."""
        return np.array([info.meaning.exact for info in self.series], dtype=np.bool_)

    def present(self, row: int) -> NDArray[np.intp]:
        """The columns in which the series has an entry, be it a value or a failure."""
        whole, columns = self._whole
        return columns if whole[row] else np.flatnonzero(self.values[row] != ABSENT)

    def take(self, rows: Sequence[int]) -> Table:
        """The same table with these series alone."""
        chosen = list(rows)
        return replace(
            self,
            series=tuple(self.series[row] for row in chosen),
            values=self.values[chosen],
            low=self.low[chosen],
            high=self.high[chosen],
            methods=self.methods[chosen],
        )

    @cached_property
    def _names(self) -> NDArray[np.uint64]:
        """What a page says of each commit."""
        said = (f"{c.hash} {c.time_s} {c.subject}".encode("utf-8", "replace") for c in self.commits)
        names = b"".join(hashlib.blake2b(text, digest_size=8).digest() for text in said)
        return np.frombuffer(names, dtype=np.uint64)

    def digest(self, row: int) -> str:
        """Equal for equal histories of one series, whatever else the table holds."""
        present = self.present(row)
        info, borders = self.series[row], self.borders(row)
        what = (info.key, info.meaning, info.workload, info.target, borders)
        state = hashlib.blake2b(repr(what).encode(), digest_size=12)
        whole = len(present) == len(self.commits)
        for array in (self.values[row], self.low[row], self.high[row], self._names):
            state.update((array if whole else array[present]).tobytes())
        return state.hexdigest()

    @cached_property
    def _metrics(self) -> dict[tuple[str, str, str], int]:
        return {
            (one.meaning.metric, one.workload, one.target): row
            for row, one in enumerate(self.series)
        }

    def row_of(self, metric: str, workload: str, target: str) -> int | None:
        """The row of another metric of the same workload, ``None`` where it was not measured."""
        return self._metrics.get((metric, workload, target))

    @cached_property
    def _columns(self) -> dict[str, int]:
        return {commit.hash: column for column, commit in enumerate(self.commits)}

    def column_of(self, commit: str) -> int | None:
        """The column of a commit, ``None`` where it was not measured here."""
        return self._columns.get(commit)

    def border_commits(self, row: int) -> list[str]:
        """The commits at which a series' method or platform changed."""
        present = self.present(row)
        return [self.commits[present[index]].hash for index in self.borders(row)]

    def samples(self, row: int, commit: str) -> tuple[float, ...]:
        """The stored samples behind one value, empty where asv kept none."""
        key = self.series[row].key
        for path in reversed(self.files.get(commit, ())):
            found = read_samples(path, key.benchmark, key.params)
            if found:
                return found
        return ()

    def latest(self, row: int) -> float | None:
        """The newest measured value of a series."""
        newest = float(self.values[row, -1])
        if math.isfinite(newest):
            return newest
        finite = np.flatnonzero(np.isfinite(self.values[row]))
        return float(self.values[row, finite[-1]]) if len(finite) else None

    def borders(self, row: int) -> tuple[int, ...]:
        """Indexes among the present points before which the method or the platform changed."""
        if self._plain[row]:
            return ()
        found = self._borders.get(row)
        if found is None:
            present = self.present(row)
            methods, platforms = self.methods[row, present], self.platforms[present]
            changed = (methods[1:] != methods[:-1]) | (platforms[1:] != platforms[:-1])
            found = self._borders[row] = tuple((np.flatnonzero(changed) + 1).tolist())
        return found

    @cached_property
    def _borders(self) -> dict[int, tuple[int, ...]]:
        """Those that were requested."""
        return {}

    def model(self, row: int) -> Series:
        """The model's view of one series."""
        info = self.series[row]
        points = []
        for column in self.present(row).tolist():
            value = float(self.values[row, column])
            low, high = float(self.low[row, column]), float(self.high[row, column])
            points.append(
                Point(
                    self.commits[column].hash,
                    value if np.isfinite(value) else None,
                    state_of(value),
                    (),
                    (low, high) if np.isfinite(low) and np.isfinite(high) else None,
                    int(self.started_ms[column]) or None,
                )
            )
        return Series(
            info.key,
            info.meaning.unit,
            info.meaning.better,
            info.meaning.role,
            info.meaning.exact,
            info.meaning.instrument,
            tuple(points),
            self.borders(row),
            info.meaning.metric,
            info.workload,
            info.target,
        )


def with_borders_of_the_bound(table: Table) -> Table:
    """The same table with a border in each series whose values the bound's later terms change."""
    found = table.methods
    for row, info in enumerate(table.series):
        metric, workload, target = info.meaning.metric, info.workload, info.target
        added = table.row_of(bound_terms.METRIC, workload, target)
        if metric not in bound_terms.CONCERNED or added is None:
            continue
        spills = table.row_of(bound_terms.SPILLED, workload, target)
        spilled = None if spills is None else table.values[spills]
        own = bound_terms.methods(
            table.methods[row], table.values[row], table.values[added], spilled
        )
        if not np.array_equal(own, table.methods[row]):
            found = found.copy() if found is table.methods else found
            found[row] = own
    return table if found is table.methods else replace(table, methods=found)


def with_short_calls(table: Table) -> Table:
    """The same table, in which each call is judged by its time or, where it is short, by cycles.

    A call is as long as the middle of its newest times. One failure to count changes nothing: of
    those times, one with cycles of its commit is enough.
    """
    said: dict[int, SeriesInfo] = {}
    short: dict[tuple[str, str], bool] = {}
    for row, info in enumerate(table.series):
        if info.meaning.role != "verdict" or info.meaning.exact or not info.meaning.metric:
            continue
        home = (info.workload, info.target)
        if home not in short:
            short[home] = _is_short(table, *home)
        why = short_calls.explains(info.meaning.metric, short[home])
        if why:
            meaning = replace(info.meaning, role="evidence", explains=why)
            said[row] = replace(info, meaning=meaning)
    if not said:
        return table
    return replace(
        table, series=tuple(said.get(row, info) for row, info in enumerate(table.series))
    )


def _is_short(table: Table, workload: str, target: str) -> bool:
    time, cycles = (
        table.row_of(name, workload, target) for name in (short_calls.TIME, short_calls.CYCLES)
    )
    if time is None or cycles is None:
        return False
    newest = np.flatnonzero(np.isfinite(table.values[time]))[-short_calls.NEWEST :]
    if not len(newest):
        return False
    counted = bool(np.isfinite(table.values[cycles, newest]).any())
    return short_calls.is_short(float(np.median(table.values[time, newest])), counted)


@dataclass(frozen=True, eq=False)
class History:
    """Everything that was measured; ``notices`` are what a reader of the report must know."""

    commits: tuple[Commit, ...]
    tables: tuple[Table, ...]
    notices: tuple[str, ...] = ()
    url: str = ""
    # For each folder that benchmarks name as their sources, the commits that changed it.
    touching: Mapping[str, Set[str]] = field(default_factory=dict)
    # The same with the files: by folder and commit what it changed there.
    files: Mapping[str, Mapping[str, frozenset[str]]] = field(default_factory=dict)

    @cached_property
    def positions(self) -> dict[str, int]:
        return {commit.hash: commit.position for commit in self.commits}

    def seconds(self, key: SeriesKey, commit: str) -> float:
        """How long one value of a series took to measure; 0 where no file says it."""
        files = (
            path
            for table in self.tables
            if (table.machine, table.environment) == (key.machine, key.environment)
            for path in reversed(table.files.get(commit, ()))
        )
        return next(filter(None, (read_seconds(path, key.benchmark) for path in files)), 0.0)

    @cached_property
    def measured(self) -> tuple[Commit, ...]:
        """Commits with at least one result, oldest first."""
        return tuple(
            sorted({c for table in self.tables for c in table.commits}, key=lambda c: c.position)
        )


def state_of(value: float) -> PointState:
    """What a present value of a table means."""
    if value == FAILED:
        return "failed"
    return "measured" if np.isfinite(value) else "not applicable"
