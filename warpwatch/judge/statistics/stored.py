"""What two stored results say of each other: medians, their intervals, and how far a history
wanders."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from .paired import FINEST, Comparison

# asv keeps ten samples of a benchmark unless told otherwise.
_STORED_FREEDOM = 9.0


@dataclass(frozen=True)
class Stored:
    """A median with its 99 % interval, as asv keeps them; NaN where it kept none."""

    value: float
    low: float
    high: float


def of_intervals(base: Stored, head: Stored, wander: float, lone: float) -> Comparison | None:
    """Two results as a comparison of their levels.

    Args:
        base: the result compared with.
        head: the result judged.
        wander: how far processes of one commit lie apart, a relative standard deviation.
        lone: the same of results without an interval, NaN where nothing tells it.

    Returns:
        The comparison, ``None`` where nothing says how far the results lie apart.
    """
    errors = [_error(one, wander, lone) for one in (base, head)]
    if None in errors:
        return None
    error = math.sqrt(sum(one**2 for one in errors if one is not None) + FINEST**2)
    shift = float(np.log(head.value / base.value))
    p_value = 2.0 * float(special.stdtr(_STORED_FREEDOM, -abs(shift) / error))
    return Comparison(1, "ratio", shift, error, _STORED_FREEDOM, p_value, base.value)


def _error(one: Stored, wander: float, lone: float) -> float | None:
    """The standard error of a result's logarithm, ``None`` where nothing tells it."""
    if math.isnan(one.low) or math.isnan(one.high):
        return lone if one.value > 0.0 and math.isfinite(lone) else None
    if not 0.0 < one.low <= one.value <= one.high < math.inf:
        return None
    reach = 2.0 * float(special.stdtrit(_STORED_FREEDOM, 0.995))
    own = (math.log(one.high) - math.log(one.low)) / reach
    return math.hypot(own, wander)
