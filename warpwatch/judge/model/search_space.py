"""The configurations that autotuned kernels choose from, at two commits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# Of the call and not of a configuration: a verdict on them stands whatever is recorded.
OF_THE_CALL = frozenset({"compile_failures", "launches", "copied_bytes"})
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
    """Say that values are of two configurations, and not of one whose code changed.

    The space may have changed, or what fits of it, or the choice that was made on a card.

    Args:
        before: ``tuned`` of the older commit's evidence.
        after: The same of the newer one.

    Returns:
        A sentence; empty where each kernel is recorded in the same configuration.
    """
    older = {one["kernel"]: one["recorded"] for one in before}
    for one in after:
        other = older.get(one["kernel"], one["recorded"])
        if other != one["recorded"]:
            moved = f"{other} -> {one['recorded']}"
            return (
                f"{one['kernel']} is recorded in another configuration ({moved}): which is faster "
                "a GPU must say"
            )
    return ""
