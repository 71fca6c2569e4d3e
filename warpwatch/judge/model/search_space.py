"""The configurations that autotuned kernels choose from, at two commits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

# Numbers that stand for the spaces of a call, and for the configurations its values are of.
METRIC, RECORDED = "search_space", "recorded_configuration"
# Of the call and not of a configuration: a verdict on them stands whatever is recorded.
OF_THE_CALL = frozenset({"compile_failures", "launches", "copied_bytes"})
OTHER = "autotuned kernels choose from other configurations: which is faster a GPU must say"
Spaces = Sequence[Mapping[str, Any]]  # ``tuned`` of the compiled evidence


def reason(metric: str, before: float | None, after: float | None) -> str:
    """Why a compiled metric cannot be judged between two commits.

    Args:
        metric: The metric.
        before: The number of the recorded configurations, ``None`` where that is unknown.
        after: The same of the newer commit.

    Returns:
        A sentence; empty where each kernel is recorded in the same configuration.

    Example:
        >>> reason("spilled_bytes", 1.0, 1.0), reason("launches", 1.0, 2.0)
        ('', '')
    """
    if metric in OF_THE_CALL or before is None or after is None or before == after:
        return ""
    if not (math.isfinite(before) and math.isfinite(after)):
        return ""
    return (
        "an autotuned kernel is recorded in another configuration: which is faster a GPU must say"
    )


def changes(before: Spaces, after: Spaces) -> list[str]:
    """How search spaces differ: a tuner may choose another configuration then.

    Args:
        before: ``tuned`` of the older commit's evidence.
        after: The same of the newer one.

    Returns:
        A sentence for each kernel whose space is another.
    """
    sides = [
        {one["kernel"]: list(one["configurations"]) for one in side} for side in (before, after)
    ]
    said = []
    for kernel in sorted(sides[0].keys() | sides[1].keys()):
        old, new = (side.get(kernel, []) for side in sides)
        if old == new:
            continue
        if not old or not new:
            more = "chooses" if new else "no longer chooses"
            said.append(f"{kernel}: {more} among {len(new or old)} configurations")
            continue
        gone = [f"without {one}" for one in old if one not in new]
        come = [f"with {one}" for one in new if one not in old]
        named = [*gone[:1], *come[:1]]
        left = len(gone) + len(come) - len(named)
        listed = "; ".join(named) or "in another order"
        counts = f"{len(old)} -> {len(new)} configurations"
        rest = f"; and {left} more" if left else ""
        said.append(f"{kernel}: another search space, {counts}: {listed}{rest}")
    return said


def replaced(before: Spaces, after: Spaces) -> str:
    """Say that values are of two configurations, and not of one whose code changed.

    The space may have changed, or what fits of it, or the choice that was made on a card; or a
    kernel is autotuned on one side only.

    Args:
        before: ``tuned`` of the older commit's evidence.
        after: The same of the newer one.

    Returns:
        A sentence; empty where each kernel is recorded in the same configuration.
    """
    older, newer = ({one["kernel"]: one["recorded"] for one in side} for side in (before, after))
    for kernel in [*newer, *(older.keys() - newer.keys())]:
        sides = [side.get(kernel, "not autotuned") for side in (older, newer)]
        if sides[0] != sides[1]:
            return (
                f"{kernel} is recorded in another configuration ({sides[0]} -> {sides[1]}): which "
                "is faster a GPU must say"
            )
    return ""
