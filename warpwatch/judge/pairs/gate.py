"""Is head slower than base: pairs of fresh processes, judged look by look until it is clear.

Exploring looks may raise an alarm; an alarm counts only when further, fresh pairs point the same
way and all pairs together leave no doubt. The state of a gate is a function of the pairs measured
so far and nothing else, so whoever measures just asks again after each round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy import special

from warpwatch.judge.model.core import Better, Verdict
from warpwatch.judge.model.thresholds import Threshold
from warpwatch.judge.series.noise import NoiseKind, classify_pairs
from warpwatch.judge.statistics.paired import Comparison, Prior, Runs, Test, compare
from warpwatch.judge.statistics.stored import Stored, of_intervals

from .plan import Plan

# Of two identical versions, at most this share of series alarms; the scorecard measures it.
FALSE_ALARM_RATE = 0.002
_POWER = 0.95


@dataclass(frozen=True)
class Judgement:
    """What is known about one series of a comparison.

    ``smallest_seen`` is the relative change this measurement would have seen 95 times in 100.
    ``p_value`` is that of all pairs, times the number of looks.
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


@dataclass(frozen=True)
class Gate:
    """``wanted`` pairs are needed in total before the next look; 0 when the judgement stands."""

    wanted: int
    judgement: Judgement


def judge_pairs(
    base: Runs,
    head: Runs,
    better: Better,
    threshold: Threshold,
    plan: Plan | None = None,
    prior: Prior | None = None,
) -> Gate:
    """Judge the pairs of one series so far, and say whether more are needed.

    Args:
        base: The runs of base, in the order they were measured. A run that failed is NaN.
        head: Those of head: the run at each place was measured next to base's.
        better: Which way is better.
        threshold: From where on a change counts.
        plan: When to look, and how many pairs there may be; the usual plan without.
        prior: How far runs of one version lie apart, where earlier results say: the gate then looks
            from the first pair on.

    Returns:
        The judgement, and how many pairs are needed in total before the next look.

    Raises:
        ValueError: The sides differ in length.

    Examples:
        >>> from warpwatch.judge.model.thresholds import Threshold
        >>> limits = Threshold(relative=0.01, absolute=0.0, resolve=0.03)
        >>> base = [100.0, 100.3, 99.8, 100.1, 99.9, 100.2, 100.0, 99.7]
        >>> gate = judge_pairs(base, [1.05 * one for one in base], "lower", limits)
        >>> gate.wanted, gate.judgement.verdict
        (0, 'regressed')
    """
    plan = plan or Plan()
    if prior is not None:
        plan = plan.known()
    if len(base) != len(head):
        raise ValueError(f"expected as many base as head runs, got {len(base)} and {len(head)}")
    gone = _availability(base, head)
    if gone is not None:
        return Gate(0 if len(base) >= 2 else 2, gone)
    n = 0
    for n, alarm_p in plan.explore:
        if len(base) < n:
            return Gate(n, _open(base, head, "more pairs are needed", prior))
        test, noise = _choose(base[:n], head[:n])
        seen = compare(base[:n], head[:n], test, prior)
        if seen.p_value <= alarm_p and _counts(seen, threshold):
            return _confirm(base, head, n, better, threshold, plan, prior)
        if n >= plan.least_quiet and _inside(seen, threshold):
            break
    test, noise = _choose(base[:n], head[:n])
    seen = compare(base[:n], head[:n], test, prior)
    return Gate(0, _quiet(seen, test, noise, threshold, len(plan.explore), plan.explore[-1][1]))


def _confirm(
    base: Runs,
    head: Runs,
    explored: int,
    better: Better,
    threshold: Threshold,
    plan: Plan,
    prior: Prior | None,
) -> Gate:
    """After an alarm at ``explored`` pairs: do fresh pairs agree?"""
    last = explored
    for fresh in plan.confirm:
        n = explored + fresh
        if n > plan.most_pairs:
            break
        if len(base) < n:
            why = "an alarm waits for fresh pairs to confirm it"
            return Gate(n, _open(base, head, why, prior))
        last = n
        test, noise = _choose(base[:n], head[:n])
        again = compare(base[explored:n], head[explored:n], test, prior)
        pooled = compare(base[:n], head[:n], test, prior)
        agrees = again.shift * pooled.shift > 0.0 and again.p_value / 2.0 <= plan.fresh_p
        if agrees and pooled.p_value <= plan.pooled_p and _counts(pooled, threshold):
            worse = (pooled.shift > 0.0) == (better == "lower")
            return Gate(
                0,
                _judgement(
                    "regressed" if worse else "improved",
                    pooled,
                    test,
                    noise,
                    len(plan.explore),
                    f"confirmed by {fresh} fresh pairs",
                    plan.pooled_p,
                ),
            )
    test, noise = _choose(base[:last], head[:last])
    pooled = compare(base[:last], head[:last], test, prior)
    reason = f"{explored} pairs raised an alarm that {last - explored} fresh ones did not confirm"
    return Gate(
        0,
        _judgement("inconclusive", pooled, test, noise, len(plan.explore), reason, plan.pooled_p),
    )


def _quiet(
    seen: Comparison,
    test: Test,
    noise: NoiseKind,
    threshold: Threshold,
    looks: int,
    alarm_p: float,
) -> Judgement:
    draft = _judgement("unchanged", seen, test, noise, looks, "", alarm_p)
    if _inside(seen, threshold):
        return replace(draft, reason="any change is smaller than what counts")
    if draft.smallest_seen > threshold.resolve:
        reason = (
            f"too noisy: only a change of {draft.smallest_seen:.1%} would have been seen, "
            f"{threshold.resolve:.1%} is asked for"
        )
        return replace(draft, verdict="inconclusive", reason=reason)
    return replace(draft, reason="no change was seen")


def judge_groups(base: Runs, head: Runs, better: Better, threshold: Threshold) -> Judgement:
    """Judge runs that are already stored, in no pairs and without a fresh confirmation.

    The bar is therefore the one of all pairs of a gate; fewer than six runs a side can prove
    nothing.
    """
    gone = _availability(base, head)
    if gone is not None:
        return gone
    _, noise = _choose(base, head)
    seen = compare(base, head, "groups")
    bar = Plan().pooled_p
    draft = _judgement("unchanged", seen, "groups", noise, 1, "", bar)
    if seen.pairs < Plan().explore[0][0]:
        reason = f"{seen.pairs} runs a side can prove nothing: at least {Plan().explore[0][0]}"
        return replace(draft, verdict="inconclusive", reason=reason)
    if seen.p_value <= bar and _counts(seen, threshold):
        worse = (seen.shift > 0.0) == (better == "lower")
        return replace(draft, verdict="regressed" if worse else "improved", reason="stored runs")
    return _quiet(seen, "groups", noise, threshold, 1, bar)


def judge_stored(
    base: Stored,
    head: Stored,
    better: Better,
    threshold: Threshold,
    wander: float = 0.0,
    lone: float = math.nan,
) -> Judgement:
    """Judge two results of which only the median and its 99 % interval were kept.

    Args:
        base: the result compared with.
        head: the result judged.
        better: which way is better.
        threshold: what counts.
        wander: how far processes of one commit lie apart, a relative standard deviation, where the
            history of the series tells: an interval is of one process.
        lone: the same of results without an interval, NaN where no history tells: peak memory and
            the like are one value a commit.

    Returns:
        The judgement; inconclusive where nothing says how far results lie apart.
    """
    gone = _availability([base.value], [head.value])
    if gone is not None:
        return gone
    none = bool(np.isnan([base.low, base.high, head.low, head.high]).any())
    seen = of_intervals(base, head, wander, lone)
    if seen is None:
        nan = float("nan")
        ratio = head.value / base.value if base.value else nan
        reason = "an interval reaches to 0 or has no end"
        if none:
            reason = "no samples were stored, and too few values to say how far they wander"
        return Judgement(
            "inconclusive", ratio, (nan, nan), 1.0, 1, nan, "none", "none", reason
        )  # fmt: skip
    bar = Plan().pooled_p
    draft = replace(_judgement("unchanged", seen, "groups", "quiet", 1, "", bar), noise="none")
    if seen.p_value <= bar and _counts(seen, threshold):
        worse = (seen.shift > 0.0) == (better == "lower")
        verdict: Verdict = "regressed" if worse else "improved"
        said = "beyond the wander of single values" if none else "stored intervals"
        return replace(draft, verdict=verdict, reason=said)
    quiet = _quiet(seen, "groups", "quiet", threshold, 1, bar)
    return replace(quiet, noise="none")


def judge_exact(
    base: float | None, head: float | None, better: Better, threshold: Threshold
) -> Judgement:
    """Judge an instrument without noise: any change that counts is one.

    Args:
        base: The value at base; ``None`` where there is none.
        head: The value at head.
        better: Which way is better.
        threshold: From where on a change counts.

    Returns:
        The judgement.

    Examples:
        >>> from warpwatch.judge.model.thresholds import Threshold
        >>> limits = Threshold(relative=0.01, absolute=0.0, resolve=0.03)
        >>> judge_exact(1.0, 2.0, "lower", limits).verdict  # a second launch
        'regressed'
    """
    a = np.nan if base is None else float(base)
    b = np.nan if head is None else float(head)
    gone = _availability([a], [b])
    if gone is not None:
        return replace(gone, test="exact")
    ratio = b / a if a != 0.0 else (1.0 if b == 0.0 else float("inf"))
    verdict: Verdict = "unchanged"
    reason = "equal" if a == b else "smaller than what counts"
    if a != b and threshold.passed(a, b):
        verdict = "regressed" if (b > a) == (better == "lower") else "improved"
        reason = "exact"
    return Judgement(verdict, ratio, (ratio, ratio), 0.0, 1, 0.0, "exact", "none", reason)


def _availability(base: Runs, head: Runs) -> Judgement | None:
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


def _choose(base: Runs, head: Runs) -> tuple[Test, NoiseKind]:
    noise = classify_pairs(base, head)
    return noise.test, noise.kind


def _counts(seen: Comparison, threshold: Threshold) -> bool:
    head_level = seen.base_level * seen.ratio
    if seen.scale == "difference":
        head_level = seen.base_level + seen.shift
    return threshold.passed(seen.base_level, head_level)


def _inside(seen: Comparison, threshold: Threshold) -> bool:
    """Whether every change that 99 % leaves possible is too small to count."""
    ends = (replace(seen, shift=end) for end in seen.interval(0.99))
    return all(not _counts(end, threshold) for end in ends)


def _open(base: Runs, head: Runs, reason: str, prior: Prior | None) -> Judgement:
    seen = compare(base, head, "groups", prior)
    return _judgement("inconclusive", seen, "groups", "quiet", 1, reason, 0.01)


def _judgement(
    verdict: Verdict,
    seen: Comparison,
    test: Test,
    noise: NoiseKind,
    looks: int,
    reason: str,
    bar: float,
) -> Judgement:
    low, high = (replace(seen, shift=end).ratio for end in seen.interval(0.95))
    freedom = max(seen.freedom, 1.0)
    reach = float(special.stdtrit(freedom, 1.0 - bar / 2.0) + special.stdtrit(freedom, _POWER))
    smallest = seen.error * reach
    if seen.scale == "ratio":
        smallest = float(np.expm1(min(smallest, 700.0)))
    elif seen.base_level:
        smallest = smallest / abs(seen.base_level)
    return Judgement(
        verdict=verdict,
        ratio=seen.ratio,
        interval=(low, high),
        p_value=min(1.0, seen.p_value * looks),
        pairs=seen.pairs,
        smallest_seen=smallest,
        test=test,
        noise=noise,
        reason=reason,
    )
