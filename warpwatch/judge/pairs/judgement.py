"""What is known about one series of a comparison, and in which words."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy import special

from warpwatch.judge.model.core import Verdict
from warpwatch.judge.model.thresholds import Threshold
from warpwatch.judge.series.noise import Noise, NoiseKind
from warpwatch.judge.statistics.paired import Comparison, Runs, Test

_POWER = 0.95
# A change beyond this share is none that a measurement could have seen: no bound is printed.
_LARGEST_BOUND = 10.0
# Nothing is called unchanged while a change of so many times the smallest that counts is possible.
_QUIET_REACH = 1.5
# Beyond so many pairs a machine at rest is what a series needs, not time.
_MOST_LACKING = 1000


@dataclass(frozen=True)
class Judgement:
    """What is known about one series of a comparison.

    ``smallest_seen`` is the relative change this measurement would have seen 95 times in 100,
    infinite where it is beyond 1000 %. ``p_value`` is that of all pairs, times the number of looks.
    ``more_pairs`` would decide an inconclusive series, as far as its noise tells; 0 where pairs
    decide nothing.
    """

    verdict: Verdict
    ratio: float
    interval: tuple[float, float]
    p_value: float
    pairs: int
    smallest_seen: float
    test: Test | Literal["exact", "none"]
    noise: NoiseKind | Literal["none"]
    reason: str
    more_pairs: int = 0


@dataclass(frozen=True)
class Look:
    """Pairs compared: what they say of the ratio, the kind of their noise, and what is asked.

    ``bar`` is the two-sided p-value that an alarm needs, ``looks`` how often it could be raised.
    """

    seen: Comparison
    noise: Noise
    test: Test
    threshold: Threshold
    bar: float
    looks: int = 1

    def judged(self, verdict: Verdict, reason: str) -> Judgement:
        """The judgement that gives this verdict for this reason."""
        seen = self.seen
        low, high = (replace(seen, shift=end).ratio for end in seen.interval(0.95))
        draft = Judgement(
            verdict=verdict,
            ratio=seen.ratio,
            interval=(low, high),
            p_value=min(1.0, seen.p_value * self.looks),
            pairs=seen.pairs,
            smallest_seen=smallest_seen(seen, seen.error, seen.freedom, self.bar),
            test=self.test,
            noise=self.noise.kind,
            reason=reason,
        )
        if verdict != "inconclusive":
            return draft
        return replace(draft, more_pairs=self.lacking(draft.smallest_seen))

    def quiet(self) -> Judgement:
        """The judgement where no alarm was raised."""
        draft = self.judged("unchanged", "any change is smaller than what counts")
        if inside(self.seen, self.threshold):
            return draft
        resolve = self.threshold.resolve
        if draft.smallest_seen > resolve:
            reason = (
                f"too noisy: only {change(draft.smallest_seen)} would have been seen, "
                f"{resolve:.1%} is asked for"
            )
            return self.judged("inconclusive", reason)
        return replace(draft, reason="no change was seen")

    def is_settled(self) -> bool:
        """Whether nothing that further pairs could show would count for much: every change that
        99 % leaves possible is small, and one that is asked for would have been seen."""
        reach = replace(
            self.threshold,
            relative=_QUIET_REACH * self.threshold.relative,
            absolute=_QUIET_REACH * self.threshold.absolute,
        )
        if not inside(self.seen, reach):
            return False
        return inside(self.seen, self.threshold) or self.sees_enough()

    def sees_enough(self) -> bool:
        """Whether a change of the size that is asked for would have been seen."""
        return (
            smallest_seen(self.seen, self.seen.error, self.seen.freedom, self.bar)
            <= self.threshold.resolve
        )

    def seen_after(self, pairs: int) -> float:
        """The smallest change that so many pairs of this noise would see, at best: outliers that
        inflate the error of few pairs are trimmed from many."""
        n = max(self.seen.pairs, 1)
        robust = self.noise.sigma * math.sqrt(2.0 / pairs)
        error = min(self.seen.error * math.sqrt(n / pairs), robust)
        return smallest_seen(self.seen, error, 2.0 * pairs - 2.0, self.bar)

    def lacking(self, seen: float) -> int:
        """How many more pairs would see a change of the size that is asked for, or of the one that
        these show where that is smaller; 0 where no number of them does."""
        shown = abs(self.seen.ratio - 1.0)
        resolve = self.threshold.resolve
        target = shown if counts(self.seen, self.threshold) and shown < resolve else resolve
        if not math.isfinite(self.seen.error) or target <= 0.0 or not math.isfinite(seen):
            return 0
        have = self.seen.pairs
        for pairs in range(have + 1, _MOST_LACKING):
            error = self.seen.error * math.sqrt(have / pairs)
            if smallest_seen(self.seen, error, 2.0 * pairs - 2.0, self.bar) <= target:
                return pairs - have
        return 0


def smallest_seen(seen: Comparison, error: float, freedom: float, bar: float) -> float:
    """The relative change that a measurement with this error sees 95 times in 100.

    Args:
        seen: The comparison, for its scale and level.
        error: The standard error of its shift.
        freedom: The degrees of freedom of the error.
        bar: The two-sided p-value that an alarm needs.

    Returns:
        A share; infinite where it is so large that it says nothing.
    """
    freedom = max(freedom, 1.0)
    reach = float(special.stdtrit(freedom, 1.0 - bar / 2.0) + special.stdtrit(freedom, _POWER))
    smallest = error * reach if error else 0.0
    if seen.scale == "ratio":
        smallest = float(np.expm1(min(smallest, 700.0)))
    elif seen.base_level:
        smallest /= abs(seen.base_level)
    elif smallest:
        return math.inf  # nothing is a share of zero
    return smallest if smallest <= _LARGEST_BOUND else math.inf


def change(share: float) -> str:
    """The smallest change that a measurement would have seen, in words.

    Args:
        share: The change as a share of base.

    Returns:
        Words; a bound that says nothing is none.

    Examples:
        >>> change(0.034), change(float("inf"))
        ('a change of 3.4%', 'a change beyond 1000%')
    """
    if not share <= _LARGEST_BOUND:
        return f"a change beyond {_LARGEST_BOUND:.0%}"
    return f"a change of {share:.1%}"


def availability(base: Runs, head: Runs) -> Judgement | None:
    """A verdict where one side has no value at all."""
    has_base = bool(np.isfinite(np.asarray(base, dtype=np.float64)).any())
    has_head = bool(np.isfinite(np.asarray(head, dtype=np.float64)).any())
    if not len(base) and not len(head):
        return None
    nan = float("nan")
    empty = Judgement("missing", nan, (nan, nan), 1.0, len(base), nan, "none", "none", "")
    if has_base and has_head:
        return None
    if has_base:
        return replace(empty, reason="no run of head gave a value")
    if has_head:
        return replace(empty, verdict="not applicable", reason="no run of base gave a value")
    return replace(empty, reason="no run gave a value")


def counts(seen: Comparison, threshold: Threshold) -> bool:
    """Whether the change that was seen is large enough to count."""
    head_level = seen.base_level * seen.ratio
    if seen.scale == "difference":
        head_level = seen.base_level + seen.shift
    return threshold.passed(seen.base_level, head_level)


def inside(seen: Comparison, threshold: Threshold) -> bool:
    """Whether every change that 99 % leaves possible is too small to count."""
    ends = (replace(seen, shift=end) for end in seen.interval(0.99))
    return all(not counts(end, threshold) for end in ends)
