"""The configurations that autotuned kernels choose from, at two commits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Spaces = Sequence[Mapping[str, Any]]  # ``tuned`` of the compiled evidence


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
    for kernel in sorted(sides[0].keys() & sides[1].keys()):
        old, new = (side[kernel] for side in sides)
        if old == new:
            continue
        gone = [f"without {one}" for one in old if one not in new]
        come = [f"with {one}" for one in new if one not in old]
        named = [*gone[:1], *come[:1]]
        more = len(gone) + len(come) - len(named)
        listed = "; ".join(named) or "in another order"
        counts = f"{len(old)} -> {len(new)} configurations"
        rest = f"; and {more} more" if more else ""
        said.append(f"{kernel}: another search space, {counts}: {listed}{rest}")
    return said


def replaced(before: Spaces, after: Spaces) -> str:
    """Say that values are of two configurations because the space changed, not the code of one.

    Args:
        before: ``tuned`` of the older commit's evidence.
        after: The same of the newer one.

    Returns:
        A sentence; empty where each kernel is recorded in the same configuration, or where its
        space is the same.
    """
    older = {one["kernel"]: one for one in before}
    for one in after:
        other = older.get(one["kernel"])
        if other is None or list(other["configurations"]) == list(one["configurations"]):
            continue
        if other["recorded"] != one["recorded"]:
            moved = f"{other['recorded']} -> {one['recorded']}"
            return (
                f"{one['kernel']} is recorded in another configuration, as its search space "
                f"changed ({moved}): which is faster a GPU must say"
            )
    return ""
