"""Which of the changes for the worse are failures, and of which kind: lost, flaky, a failed build.

A failure is no slowdown: it loses no time, and one cause of it can be thousands of series.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from warpwatch.judge.model.core import Change, FindingKind, SeriesKey
from warpwatch.judge.results.history import Table
from warpwatch.judge.series.changes import kind

FLAPS = 3  # losses of one series; as many are no event but a habit
BUILD_LEAST, BUILD_SHARE = 5, 0.8  # series that failed at one commit, of those that ran before
_FAILURES = "compile_failures"


def sorted_by_kind(
    changes: Sequence[Change], places: Mapping[SeriesKey, tuple[Table, int]]
) -> dict[FindingKind, list[Change]]:
    """The changes that a finding speaks of, by what kind of finding that is.

    Args:
        changes: all of each series, oldest first.
        places: the table and the row of each series.

    Returns:
        Lists in the order of the changes; what a series gained is in none.
    """
    builds = _failed_builds(changes, places)
    flaps: dict[SeriesKey, int] = {}
    for change in changes:
        if kind(change) == "lost" and _when(change, places) not in builds:
            flaps[change.series] = flaps.get(change.series, 0) + 1
    found: dict[FindingKind, list[Change]] = {}
    for change in changes:
        side = kind(change)
        name: FindingKind
        if side == "gained":
            continue
        table, row = places[change.series]
        if side == "hurt" and table.series[row].meaning.metric == _FAILURES:
            side = "lost"
        if side == "other space":
            name = side
        elif side != "lost":
            name = "slower" if side == "hurt" else "faster"
        elif _when(change, places) in builds:
            name = "failed build"
        else:
            name = "flaky" if flaps.get(change.series, 0) >= FLAPS else "lost"
        found.setdefault(name, []).append(change)
    return found


def _when(change: Change, places: Mapping[SeriesKey, tuple[Table, int]]) -> tuple[int, str]:
    return id(places[change.series][0]), change.first_commit


def _failed_builds(
    changes: Sequence[Change], places: Mapping[SeriesKey, tuple[Table, int]]
) -> set[tuple[int, str]]:
    """The tables and commits at which nearly all that ran before failed.

    What compiles has no machine whose build could fail, and a metric of its own that says so.
    """
    lost: dict[tuple[int, str], int] = {}
    for change in changes:
        if change.verdict == "missing" and change.series.machine:
            when = _when(change, places)
            lost[when] = lost.get(when, 0) + 1
    tables = {id(table): table for table, _ in places.values()}
    found = set()
    for (table, commit), count in lost.items():
        column = tables[table].column_of(commit)
        if count < BUILD_LEAST or not column:
            continue
        ran = np.count_nonzero(np.isfinite(tables[table].values[:, column - 1]))
        if count >= BUILD_SHARE * ran:
            found.add((table, commit))
    return found
