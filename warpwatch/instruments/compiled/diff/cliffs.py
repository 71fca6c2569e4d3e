"""Tuned configurations that fell off a cliff: they serve one side of a comparison and fail the
other.

A configuration is held against itself on the first side, and its level against the best that the
table reaches on each side: so two targets, whose matrix units have other names, can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from warpwatch.instruments.compiled.measure.jobs import Result

# Of the shortest bound of the table: a configuration that needs this many times as long for its
# busiest unit, where it did not before, was tuned for something else.
TWICE = 2.0
_LEVELS = {
    "tensor_core_level": ("matrix instructions", ("none", "mma.sync or MFMA", "wgmma", "tcgen05")),
    "async_copy_level": ("pipelining", ("plain loads", "asynchronous copies", "TMA")),
}


@dataclass(frozen=True)
class Fallen:
    """A configuration and what became of it, the gravest first."""

    name: str
    target: str
    reasons: tuple[str, ...]


def fallen(
    target: str, before: Mapping[str, Result], after: Mapping[str, Result]
) -> tuple[list[Fallen], list[str]]:
    """Find the configurations that fell.

    Args:
        target: What the second side is compiled for.
        before: The first side, by the name of a configuration.
        after: The second side.

    Returns:
        Those that fell, and one line for each that could not be compared.
    """
    best = [_best(side.values()) for side in (before, after)]
    found, unknown = [], []
    for name, new in after.items():
        old = before[name]
        odd = next(
            (one for one in (old, new) if one.status in ("not measured", "import failed")), None
        )
        if odd is not None:
            unknown.append(f"{name}: {odd.status}: {odd.detail}")
        elif old.status != "ok":
            unknown.append(f"{name}: already before: {old.detail}")
        elif reasons := _reasons(old, new, best):
            found.append(Fallen(name, target, tuple(reasons)))
    return found, unknown


def _best(side: Iterable[Result]) -> Mapping[str, float]:
    """The best that any configuration of a side reaches."""
    good = [one for one in side if one.status == "ok"]
    found = {}
    for metric in _LEVELS:
        found[metric] = max((one.values.get(metric) or 0.0 for one in good), default=0.0)
    bounds = [one.values.get("bound_us") or 0.0 for one in good]
    found["bound_us"] = min((one for one in bounds if one > 0), default=0.0)
    return found


def _reasons(old: Result, new: Result, best: Sequence[Mapping[str, float]]) -> list[str]:
    if new.status != "ok":
        return [new.detail]
    found = []
    spilled = [one.values.get("spilled_bytes") or 0.0 for one in (old, new)]
    if spilled[1] > TWICE * spilled[0]:
        found.append(f"registers spill: {spilled[0]:,.0f} -> {spilled[1]:,.0f} bytes a thread")
    for metric, (what, words) in _LEVELS.items():
        levels = [int(one.values.get(metric) or 0) for one in (old, new)]
        behind = [best[side][metric] - level for side, level in enumerate(levels)]
        if behind[1] > max(0, behind[0]):
            found.append(
                f"lost {what}: {words[levels[1]]}, where others of the table have "
                f"{words[int(best[1][metric])]}"
            )
        elif levels[1] == 0 < levels[0] and metric == "tensor_core_level":
            found.append(f"lost {what}: {words[levels[0]]} -> none")
    said = {text for one in old.evidence.get("launches", []) for text in one["advisories"]}
    for launch in new.evidence.get("launches", []):
        found += [text for text in launch["advisories"] if text not in (*said, *found)]
    times = [
        (one.values.get("bound_us") or 0.0) / side["bound_us"] if side["bound_us"] else 0.0
        for one, side in zip((old, new), best, strict=True)
    ]
    if times[1] >= TWICE * max(times[0], 1.0):
        found.append(
            f"bound {times[1]:.1f} times that of the best of the table, before {times[0]:.1f} times"
        )
    return found
