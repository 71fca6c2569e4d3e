"""How much of a history could be judged, and why not the rest: nothing is green unmeasured."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from warpwatch.judge.results.history import History, Table

from .fit import LEAST_POINTS

LEAST_NOISY, LEAST_EXACT = 2 * LEAST_POINTS, 2  # values under one method on one platform
_FEW = "have too few values"
_NEVER = "never compiled"
_FAILURES = "compile_failures"
_BORDERS = "were measured by another method or on another platform at most commits"
_NO_DIRECTION = "say of no direction that it is better"
_ONE_COMMIT = 3  # machines; as many that measured one commit each are no chance


@dataclass(frozen=True)
class Coverage:
    """Of ``series`` that may raise an alarm ``judged`` could be; ``reasons`` count the others.

    ``once`` is the number of machines that measured a single commit, ``commits`` that of all
    measured ones. ``blind``: two values of an exact series are enough, and none has them.
    """

    series: int
    judged: int
    reasons: tuple[tuple[str, int], ...]
    once: int
    commits: int
    blind: bool = False

    @property
    def enough(self) -> bool:
        """Whether half of the series could be judged, or the history is too young to ask; not
        where exact series had commits to compare and none could be."""
        if self.blind:
            return False
        return 2 * self.judged >= self.series or self.commits < LEAST_NOISY

    @property
    def sentence(self) -> str:
        """All of it in words."""
        said = f"{self.judged:,} of {self.series:,} series could be judged"
        parts = [f"{count:,} {reason}" for reason, count in self.reasons]
        if self.once >= _ONE_COMMIT:
            parts.append(
                f"{self.once:,} machines measured one commit each (`--machines model` joins those "
                "of one model)"
            )
        return f"{said}: {'; '.join(parts)}" if parts else said


def coverage(history: History) -> Coverage:
    """What of a history could be judged.

    Args:
        history: as it was assembled.

    Returns:
        Counts of its series.
    """
    reasons: Counter[str] = Counter()
    judged = 0
    exact: Counter[bool] = Counter()
    for table in history.tables:
        for row in range(len(table.series)):
            if table.series[row].meaning.role != "verdict":
                continue
            reason = _reason(table, row)
            if table.series[row].meaning.exact and table.series[row].meaning.better:
                exact[not reason] += 1
            if reason:
                reasons[reason] += 1
            else:
                judged += 1
    once: Counter[str] = Counter()
    for table in history.tables:
        once[table.machine] = max(once[table.machine], len(table.commits))
    single = sum(commits == 1 for machine, commits in once.items() if machine)
    total = judged + sum(reasons.values())
    blind = len(history.measured) >= LEAST_EXACT and exact[False] > 0 and not exact[True]
    return Coverage(
        total, judged, tuple(reasons.most_common()), single, len(history.measured), blind
    )


def _reason(table: Table, row: int) -> str:
    """Why a series could not be judged, "" where at least half of its values could."""
    meaning = table.series[row].meaning
    if meaning.better is None:
        return _NO_DIRECTION
    least = LEAST_EXACT if meaning.exact else LEAST_NOISY
    borders = table.borders(row)
    finite = np.isfinite(table.values[row, table.present(row)] if borders else table.values[row])
    values = int(np.count_nonzero(finite))
    if values < least:
        return _FEW
    if meaning.metric == _FAILURES and not np.any(table.values[row] == 0):
        return _NEVER  # as many failures as before are no sign that nothing got worse
    parts = [np.count_nonzero(finite[a:b]) for a, b in pairwise((0, *borders, len(finite)))]
    return "" if 2 * sum(part for part in parts if part >= least) >= values else _BORDERS
