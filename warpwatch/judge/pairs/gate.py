"""Is head slower than base: pairs of fresh processes, judged look by look until it is clear.

Exploring looks may raise an alarm; an alarm counts only when further, fresh pairs point the same
way and all pairs together leave no doubt. The state of a gate is a function of the pairs measured
so far and nothing else, so whoever measures just asks again after each round.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from warpwatch.judge.model.core import Better, Verdict
from warpwatch.judge.model.thresholds import Threshold
from warpwatch.judge.series.noise import classify_pairs
from warpwatch.judge.statistics.paired import Prior, Runs, compare

from .judgement import Judgement, Look, availability, change, counts, inside
from .plan import Plan

# Of two identical versions, at most this share of series alarms; the scorecard measures it.
FALSE_ALARM_RATE = 0.002
# A series is given up as too noisy only while no alarm is near: its p-value is above this.
_FAR_FROM_ALARM = 0.2


@dataclass(frozen=True)
class Gate:
    """``wanted`` pairs are needed in total before the next look; 0 when the judgement stands."""

    wanted: int
    judgement: Judgement


@dataclass(frozen=True)
class _Pairs:
    """All pairs of one series so far, and how they are to be judged."""

    base: Runs
    head: Runs
    better: Better
    threshold: Threshold
    plan: Plan
    prior: Prior | None

    def look(self, pairs: int, bar: float) -> Look:
        """At the first so many."""
        base, head = self.base[:pairs], self.head[:pairs]
        noise = classify_pairs(base, head)
        seen = compare(base, head, noise.test, self.prior)
        return Look(seen, noise, noise.test, self.threshold, bar, len(self.plan.explore))

    def refutes(self, look: Look) -> bool:
        """Whether the runs lie apart as their prior does not say."""
        return self.prior is not None and not look.seen.by_prior

    def waits(self, wanted: int, reason: str) -> Gate:
        """For pairs that are not measured yet."""
        seen = compare(self.base, self.head, "groups", self.prior)
        noise = classify_pairs(self.base, self.head)
        look = Look(seen, replace(noise, kind="quiet"), "groups", self.threshold, 0.01)
        judgement = look.judged("inconclusive", reason)
        more = max(wanted - len(self.base), judgement.more_pairs)
        return Gate(wanted, replace(judgement, more_pairs=more))


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
            from the first pair on. Where the pairs refute it, all of them are judged without.

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
    if len(base) != len(head):
        raise ValueError(f"expected as many base as head runs, got {len(base)} and {len(head)}")
    gone = availability(base, head)
    if gone is not None:
        return Gate(0 if len(base) >= 2 else 2, gone)
    if prior is not None:
        gate = _explore(_Pairs(base, head, better, threshold, plan.known(), prior))
        if gate is not None:
            return gate
    gate = _explore(_Pairs(base, head, better, threshold, plan, None))
    assert gate is not None, "only a prior is refuted"
    return gate


def _explore(pairs: _Pairs) -> Gate | None:
    """Where the gate stands; nothing where the pairs refute the prior by which it looked."""
    base, plan, threshold = pairs.base, pairs.plan, pairs.threshold
    last_p = plan.explore[-1][1]
    for n, alarm_p in plan.explore:
        if len(base) < n:
            return pairs.waits(n, "more pairs are needed")
        look = pairs.look(n, last_p)
        if pairs.refutes(look):
            return None
        if look.seen.p_value <= alarm_p and counts(look.seen, threshold):
            return _confirm(pairs, n)
        if n >= plan.least_quiet and look.is_settled():
            break
        if n >= plan.least_quiet and (hopeless := _hopeless(look, plan)):
            return Gate(0, hopeless)
    return Gate(0, look.quiet())


def _hopeless(look: Look, plan: Plan) -> Judgement | None:
    """The judgement of a series that no pairs of this plan can decide, far from any alarm."""
    best = look.seen_after(plan.most_pairs)
    asked = look.threshold.resolve
    if look.seen.p_value <= _FAR_FROM_ALARM or best <= asked:
        return None
    reason = (
        f"too noisy: even {plan.most_pairs} pairs would only have seen {change(best)}, "
        f"{asked:.1%} is asked for"
    )
    return look.judged("inconclusive", reason)


def _confirm(pairs: _Pairs, explored: int) -> Gate | None:
    """After an alarm at ``explored`` pairs: do fresh pairs agree?"""
    plan, threshold = pairs.plan, pairs.threshold
    last = explored
    for n in plan.confirming(explored):
        if len(pairs.base) < n:
            return pairs.waits(n, "an alarm waits for fresh pairs to confirm it")
        last = n
        look = pairs.look(n, plan.pooled_p)
        if pairs.refutes(look):
            return None
        pooled = look.seen
        fresh = slice(explored, n)
        again = compare(pairs.base[fresh], pairs.head[fresh], look.test, pairs.prior)
        agrees = again.shift * pooled.shift > 0.0 and again.p_value / 2.0 <= plan.fresh_p
        bar = plan.pooled_p if look.sees_enough() else plan.noisy_p
        early = n < plan.first and pooled.p_value_at(plan.early_noise) > bar
        if agrees and pooled.p_value <= bar and not early and counts(pooled, threshold):
            worse = (pooled.shift > 0.0) == (pairs.better == "lower")
            reason = f"confirmed by {n - explored} fresh pairs"
            return Gate(0, look.judged("regressed" if worse else "improved", reason))
        if n >= plan.least_quiet and inside(pooled, threshold):
            return Gate(0, look.judged("unchanged", "any change is smaller than what counts"))
    look = pairs.look(last, plan.pooled_p)
    reason = f"{explored} pairs raised an alarm that {last - explored} fresh ones did not confirm"
    return Gate(0, look.judged("inconclusive", reason))


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
    gone = availability([a], [b])
    if gone is not None:
        return replace(gone, test="exact")
    ratio = b / a if a != 0.0 else (1.0 if b == 0.0 else float("inf"))
    verdict: Verdict = "unchanged"
    reason = "equal" if a == b else "smaller than what counts"
    if a != b and threshold.passed(a, b):
        verdict = "regressed" if (b > a) == (better == "lower") else "improved"
        reason = "exact"
    return Judgement(verdict, ratio, (ratio, ratio), 0.0, 1, 0.0, "exact", "none", reason)
