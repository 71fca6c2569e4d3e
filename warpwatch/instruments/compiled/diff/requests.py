"""Code that asks memory more often for the same work: loads that became narrow, values that go
through shared memory where they went from register to register.

No metric counts it: an instruction is no cost of its own. Where arithmetic and launch are as they
were and a unit of memory is asked at least twice as often, the compiler lost a form of access.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .change import Change

TIMES = 2.0
_MORE = {"global": 3, "shared": 16}  # instructions at least
_ARITHMETIC = ("tensor", "special", "fma")
_ALIKE = 1.25


def changes(old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> list[Change]:
    """Compare the launches of two sides.

    Args:
        old: The evidence of each launch before.
        new: The same after, in the same order.

    Returns:
        A change for each unit of memory that is asked more often for the same work.
    """
    if len(old) != len(new):
        return []
    found = []
    for unit, least in _MORE.items():
        counts = [0, 0]
        for one, other in zip(old, new, strict=True):
            if _same_work(one, other):
                pair = [side["instructions"].get(unit, 0) for side in (one, other)]
                if max(pair) >= TIMES * min(pair) and abs(pair[1] - pair[0]) >= least:
                    counts = [total + count for total, count in zip(counts, pair, strict=True)]
        before, after = counts
        if after > before:
            found.append(Change(f"{unit}_instructions", before, after, better=False))
    return found


def _same_work(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two launches of a kernel do the same arithmetic in as many programs and warps, and
    keep their loops as they were."""
    if any(one.get(key) != other.get(key) for key in ("kernel", "grid", "num_warps")):
        return False
    if len(one["hot_loops"]) != len(other["hot_loops"]):
        return False
    sums: list[int] = [
        sum(side["instructions"].get(kind, 0) for kind in _ARITHMETIC) for side in (one, other)
    ]
    return 0 < max(sums) <= _ALIKE * min(sums)
