"""The verdict on a call from its predicted time; its other compiled metrics are evidence of it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from warpwatch.judge.model.core import Verdict

from . import call, interval
from .call import Call, Kernel

METRIC = "predicted_us"
FAILURES = "compile_failures"
# The prediction counts these in: by themselves they say nothing about a time that is predicted.
_COUNTED_IN = frozenset(("bound_us", "blocks_in_flight", "launches", "copied_bytes"))
_SPILLS = "spilled_bytes"

_PARTS = {
    "issue": "issue slots",
    "latency": "latency",
    "memory": "device memory",
    "shared": "shared memory",
    "integer": "the integer unit",
    "fma": "the FMA unit",
    "special": "the special function unit",
    "tensor": "the tensor cores",
    "scalar": "the scalar unit",
    "ends": "code outside loops",
    call.IDLE: "the tail, in which SMs are idle",
    call.LAUNCHES: "launches",
    call.COPIES: "torch's copies",
}


@dataclass(frozen=True)
class Change:
    """The predicted time of a call before and after, in microseconds.

    ``low`` and ``high`` are the ends of the interval of the ratio. ``part`` is what moved most, and
    ``kernel`` where. ``checked`` says whether predictions for the target were held against a card.
    """

    before: float
    after: float
    low: float
    high: float
    part: str
    kernel: str
    checked: bool

    @property
    def verdict(self) -> Verdict:
        """``regressed`` or ``improved`` where the interval excludes no change, ``unchanged`` where
        code and launches are the same, else ``inconclusive``."""
        if self.low == self.high:
            return "unchanged"
        if self.checked and self.low > 1:
            return "regressed"
        return "improved" if self.checked and self.high < 1 else "inconclusive"

    @property
    def is_sure(self) -> bool:
        """Whether it decides: the interval excludes no change."""
        return self.verdict in ("regressed", "improved")

    def __str__(self) -> str:
        times = f"the call is predicted to take {_number(self.before)} -> {_number(self.after)} us"
        if not self.checked:
            return f"{times}, which was not checked against a machine"
        sure = f"with {100 * interval.CONFIDENCE:.0f} % confidence"
        if not self.is_sure:
            least, most = (f"{100 * (end - 1):+.0f}" for end in (self.low, self.high))
            return f"{times}, {least} to {most} % {sure}"
        low, high = sorted(100 * abs(end - 1) for end in (self.low, self.high))
        way = "longer" if self.after > self.before else "shorter"
        why = f", mostly {_PARTS.get(self.part, self.part)}" if self.part else ""
        where = f" of {self.kernel}" if self.kernel else ""
        return f"{times}, {low:.0f} to {high:.0f} % {way} {sure}{why}{where}"


def between(old: Mapping[str, Any], new: Mapping[str, Any]) -> Change | None:
    """Compare the predicted times of a call.

    Args:
        old: The evidence of the call before.
        new: The evidence after, on the same target.

    Returns:
        How its time changes; ``None`` where one of them has no prediction.
    """
    before, after = call.of(old), call.of(new)
    return None if before is None or after is None else of_calls(before, after)


def of_calls(before: Call, after: Call) -> Change | None:
    """The same of times that were read; ``None`` where two models of time predicted them."""
    if before.model != after.model:
        return None
    ratio = after.us / before.us
    low, high = (1.0, 1.0) if before == after else interval.of_ratio(ratio)
    part, kernel = _most(before, after)
    return Change(before.us, after.us, low, high, part, kernel, before.checked and after.checked)


def is_counted_in(metric: str, before: float) -> bool:
    """Whether a predicted time already holds what a metric says, so that it is no alarm by itself.

    Args:
        metric: A verdict metric that moved.
        before: Its value before. Spills are an alarm where they begin, not where some are added.

    Returns:
        Whether it is.
    """
    return metric in _COUNTED_IN or (metric == _SPILLS and before > 0)


def weigh(time: Change | None, worse: Mapping[str, float], better: Mapping[str, float]) -> Verdict:
    """The one verdict on a call.

    Where the interval of its predicted time excludes no change, that decides. Else a form of code
    that was lost stays an alarm: spills that begin, slower instructions, a lost pipeline. What the
    prediction counts in is none.

    Args:
        time: Its predicted time, ``None`` where there is none.
        worse: Verdict metrics that got worse, each with its value before.
        better: Those that got better.

    Returns:
        The verdict. ``mixed`` is said where metrics disagree and nothing weighs them.

    Example:
        >>> weigh(None, {"spilled_bytes": 0}, {"bound_us": 14.0})
        'mixed'
    """
    if FAILURES in worse:
        return "regressed"
    if time is None or not time.checked:
        return _of_metrics(worse, better)
    if time.is_sure:
        return time.verdict
    lost = any(not is_counted_in(*one) for one in worse.items())
    if worse and not _COUNTED_IN.issuperset(better):
        return "mixed"
    return "regressed" if lost else "inconclusive" if worse else "unchanged"


def _of_metrics(worse: Collection[str], better: Collection[str]) -> Verdict:
    if worse:
        return "mixed" if better else "regressed"
    return "improved" if better else "unchanged"


def _most(before: Call, after: Call) -> tuple[str, str]:
    """The part that moved most in the direction of the whole, and the kernel where it did."""
    moved: dict[tuple[str, str], float] = defaultdict(float)
    moved[call.COPIES, ""] = after.copies_us - before.copies_us
    names = [Counter(one.name for one in side.kernels) for side in (before, after)]
    for sign, side in ((-1, before), (1, after)):
        for one in side.kernels:
            for part, us in _dealt(one, names):
                moved[part, one.name] += sign * us
    way = math.copysign(1, after.us - before.us)
    (part, kernel), size = max(moved.items(), key=lambda one: way * one[1])
    return (part, kernel) if way * size > 0 else ("", "")


def _dealt(one: Kernel, names: list[Counter[str]]) -> list[tuple[str, float]]:
    """Its parts; of a launch that the other side has none in the place of, all of its time."""
    if len(names[0]) != len(names[1]) and names[0][one.name] != names[1][one.name]:
        return [(call.LAUNCHES, one.us)]
    return list(one.parts.items())


def _number(us: float) -> str:
    return f"{us:.1f}" if us < 1000 else f"{us:,.0f}"
