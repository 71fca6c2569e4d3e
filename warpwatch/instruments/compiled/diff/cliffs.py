"""Tuned configurations that fell off a cliff: they serve one side of a comparison and fail the
other.

A configuration is held against itself on the first side, and its level against the best that the
table reaches on each side: so two targets, whose matrix units have other names, can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from warpwatch.instruments.compiled.measure.jobs import Result

# Of the shortest time of the table: a configuration that needs this many times as long, where it
# did not before, was tuned for something else.
TWICE = 2.0
# Where times are predicted, a loss is none that leaves a configuration within this of the best.
COSTS = 1.25
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
    sides = [_Side.of(side) for side in (before, after)]
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
        elif reasons := _reasons(name, old, new, sides):
            found.append(Fallen(name, target, tuple(reasons)))
    return found, unknown


@dataclass(frozen=True)
class _Side:
    """The best levels that any configuration of a side reaches, and what each takes, as a multiple
    of the shortest: by its predicted time where every one has one, else by its bound."""

    levels: Mapping[str, float]
    times: Mapping[str, float]
    predicted: bool

    @classmethod
    def of(cls, side: Mapping[str, Result]) -> _Side:
        good = {name: one for name, one in side.items() if one.status == "ok"}
        levels = {
            metric: max((one.values.get(metric) or 0.0 for one in good.values()), default=0.0)
            for metric in _LEVELS
        }
        predicted = {name: predicted_us(one) for name, one in good.items()}
        known = all(predicted.values())
        us = {
            name: (predicted[name] if known else one.values.get("bound_us")) or 0.0
            for name, one in good.items()
        }
        shortest = min((one for one in us.values() if one > 0), default=0.0)
        times = {name: one / shortest for name, one in us.items()} if shortest else {}
        return cls(levels, times, bool(times) and known)


def predicted_us(one: Result) -> float:
    """The predicted time of a call's launches; 0 where there is none."""
    return float(sum(launch["us"] for launch in one.evidence.get("predicted") or ()))


def _reasons(name: str, old: Result, new: Result, sides: Sequence[_Side]) -> list[str]:
    if new.status != "ok":
        return [new.detail]
    was, now = (side.times.get(name, 0.0) for side in sides)
    if sides[1].predicted and now < COSTS:
        return []
    found = []
    spilled = [one.values.get("spilled_bytes") or 0.0 for one in (old, new)]
    if spilled[1] > TWICE * spilled[0]:
        found.append(f"registers spill: {spilled[0]:,.0f} -> {spilled[1]:,.0f} bytes a thread")
    for metric, (what, words) in _LEVELS.items():
        levels = [int(one.values.get(metric) or 0) for one in (old, new)]
        lost = [side.levels[metric] - level for side, level in zip(sides, levels, strict=True)]
        if lost[1] > max(0, lost[0]):
            found.append(
                f"lost {what}: {words[levels[1]]}, where others of the table have "
                f"{words[int(sides[1].levels[metric])]}"
            )
        elif levels[1] == 0 < levels[0] and metric == "tensor_core_level":
            found.append(f"lost {what}: {words[levels[0]]} -> none")
    said = {text for one in old.evidence.get("launches", []) for text in one["advisories"]}
    for launch in new.evidence.get("launches", []):
        found += [text for text in launch["advisories"] if text not in (*said, *found)]
    if now >= TWICE * max(was, 1.0) or (found and sides[1].predicted):
        what = "predicted time" if sides[1].predicted else "bound"
        found.append(
            f"{what} {now:.1f} times that of the best of the table, before {was:.1f} times"
        )
    return found
