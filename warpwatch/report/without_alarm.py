"""What changed at a commit and opens no finding: the commit's page says it all the same."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from warpwatch.judge.findings.longer_times import LongerTime
from warpwatch.judge.model.core import Change, Commit, Step
from warpwatch.judge.results.history import SeriesInfo
from warpwatch.judge.series.changes import ratio

from . import words
from .pages.change_groups import Member
from .rendering import workload_path
from .view import View


@dataclass(frozen=True)
class Times:
    """Predicted times that got worse between two commits: ``rows`` are the call and a sentence."""

    base: str
    head: Commit
    rows: tuple[tuple[str, str, str], ...]


def times(view: View, found: Iterable[LongerTime]) -> list[Times]:
    """Predicted times that got worse and are in no finding, by the commits between which they did.

    Args:
        view: That shows them.
        found: Of them, those to show.

    Returns:
        The newest first. Each row has the title of the call, its page and how its time changed.

    Example:
        >>> [one.rows[0][0] for one in times(view, view.standing_times)]
        ['add @ sm_90']
    """
    pairs: dict[tuple[str, str], list[LongerTime]] = {}
    for one in found:
        pairs.setdefault((one.head, one.base), []).append(one)
    positions = view.judgement.history.positions
    return [
        Times(base, view.commit(head), tuple(map(_row, pairs[head, base])))
        for head, base in sorted(pairs, key=lambda pair: [-positions[name] for name in pair])
    ]


def _row(one: LongerTime) -> tuple[str, str, str]:
    return f"{one.workload} @ {one.target}", workload_path(one.workload), str(one.time)


def values(view: View, commit: Commit) -> list[Member]:
    """Exact values that changed and raise no alarm: evidence, and changes too small to count.

    Args:
        view: That shows them.
        commit: The commit at which they changed; the one before it is that of their table.

    Returns:
        In the order of the series. A value that repeats only up to noise is never among them.

    Example:
        >>> [one.title for one in values(view, commit)]
        ['registers of add @ sm_90']
    """
    judgement = view.judgement
    alarming = {change.series for change in judgement.by_commit.get(commit.hash, ())}
    found = []
    for table in judgement.history.tables:
        column = table.column_of(commit.hash)
        if not column:
            continue
        before, after = table.values[:, column - 1], table.values[:, column]
        moved = table.exact & np.isfinite(before) & np.isfinite(after) & (before != after)
        moved &= table.methods[:, column - 1] == table.methods[:, column]
        for row in np.flatnonzero(moved).tolist():
            info = table.series[row]
            if info.key not in alarming:
                found.append(_moved(view, info, float(before[row]), float(after[row])))
    return found


def _moved(view: View, info: SeriesInfo, before: float, after: float) -> Member:
    unit = info.meaning.unit
    step = Step(0, before, after, (0, 0), 1.0)
    change = Change(info.key, "unchanged", step, "", "", ratio(before, after))
    return Member(
        view.title(info),
        view.address(info.key),
        words.quantity(before, unit),
        words.quantity(after, unit),
        "another" if unit == "hash" else words.size(change, unit),
    )
