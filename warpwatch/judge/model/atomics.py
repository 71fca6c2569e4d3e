"""Atomic updates, which no model of time knows: where they came or went the bound says nothing.

A reduction by atomics has fewer launches, less memory traffic and more blocks in flight than one
in two steps, and has taken 2.4 times as long on a card: all of them wait for the same addresses.
"""

from __future__ import annotations

import math

METRIC = "atomics"
# The bound, and what is read of the launch whose bound is the longest.
UNJUDGED = ("bound_us", "blocks_in_flight")


def came_or_went(before: float | None, after: float | None) -> bool:
    """Whether a call began or ceased to update memory atomically, as far as both counts are known.

    Example:
        >>> came_or_went(0.0, 8192.0), came_or_went(4096.0, 8192.0), came_or_went(None, 8192.0)
        (True, False, False)
    """
    if before is None or after is None or not (math.isfinite(before) and math.isfinite(after)):
        return False
    return (before > 0) != (after > 0)


def reason(metric: str, before: float | None, after: float | None) -> str:
    """Why a metric cannot be judged between two commits.

    Args:
        metric: The metric.
        before: How many elements one call updated atomically, ``None`` where that is unknown.
        after: The same of the newer commit.

    Returns:
        A sentence; empty where atomic updates do not stand in the way.

    Example:
        >>> reason("bound_us", 0.0, 8192.0)
        'atomic updates 0 -> 8,192, which the bound does not know: no verdict on it'
        >>> reason("bound_us", 4096.0, 8192.0), reason("launches", 0.0, 8192.0)
        ('', '')
    """
    if metric not in UNJUDGED or not came_or_went(before, after):
        return ""
    moved = f"{before:,.0f} -> {after:,.0f}"
    return f"atomic updates {moved}, which the bound does not know: no verdict on it"
