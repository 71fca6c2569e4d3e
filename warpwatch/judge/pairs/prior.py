"""What earlier results say of the noise of a series, before the first pair is measured."""

from __future__ import annotations

import numpy as np

from warpwatch.judge.results.history import History
from warpwatch.judge.statistics.paired import Prior

from .commits import wander

# So many values tell as much of a spread as one degree of freedom: it is taken from the middle of
# the differences of neighbours, which steps and outliers do not move, and which repeats values.
POINTS_EACH = 4.0
# One pair cannot refute a prior: this many degrees of freedom keep a wrong one from an alarm.
MOST_WEIGHT = 6.0


def from_history(history: History, card: str | None = None) -> dict[tuple[str, str], Prior]:
    """How far runs of one version wander, by workload and metric.

    Args:
        history: Results of earlier commits, each of fresh processes.
        card: The results of machines with this card count only; of all machines without.

    Returns:
        For each series with enough values since its last border its spread and how much that
        weighs. Of several machines the one that wanders most counts.

    Examples:
        >>> from warpwatch.judge.results.history import History
        >>> from_history(History((), ()))  # nothing was measured yet
        {}
    """
    found: dict[tuple[str, str], Prior] = {}
    for table in history.tables:
        if card is not None and table.machine_fields.get("gpu") != card:
            continue
        for row, info in enumerate(table.series):
            if info.meaning.exact or not info.meaning.metric:
                continue
            _, apart = wander(table, row)
            if not np.isfinite(apart) or apart <= 0.0:
                continue
            present = table.present(row)
            points = len(present[max(table.borders(row), default=0) :])
            known = Prior(apart, min(MOST_WEIGHT, (points - 1) / POINTS_EACH))
            key = (info.workload, info.meaning.metric)
            if key not in found or found[key].sigma < apart:
                found[key] = known
    return found
