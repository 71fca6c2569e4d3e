"""Runs and results that are already stored, judged by the bar of a gate: there are no pairs, and no
fresh ones can confirm an alarm."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from warpwatch.judge.model.core import Better, Verdict
from warpwatch.judge.model.thresholds import Threshold
from warpwatch.judge.series.noise import Noise, classify_pairs
from warpwatch.judge.statistics.paired import Runs, compare
from warpwatch.judge.statistics.stored import Stored, of_intervals

from .judgement import Judgement, Look, availability, counts

# Nothing confirms an alarm of stored runs.
_BAR = 0.001
_FEWEST = 4


def judge_groups(base: Runs, head: Runs, better: Better, threshold: Threshold) -> Judgement:
    """Judge runs that are already stored, in no pairs and without a fresh confirmation.

    The bar is therefore the one of all pairs of a gate, and fewer than four runs a side can prove
    nothing.
    """
    gone = availability(base, head)
    if gone is not None:
        return gone
    seen = compare(base, head, "groups")
    look = Look(seen, classify_pairs(base, head), "groups", threshold, _BAR)
    if seen.pairs < _FEWEST:
        reason = f"{seen.pairs} runs a side can prove nothing: at least {_FEWEST}"
        return look.judged("inconclusive", reason)
    return _judged(look, better, "stored runs")


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
    gone = availability([base.value], [head.value])
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
    look = Look(seen, Noise("quiet", 0.0, 1.0, 1, 0.0, 0), "groups", threshold, _BAR)
    said = "beyond the wander of single values" if none else "stored intervals"
    return replace(_judged(look, better, said), noise="none")


def _judged(look: Look, better: Better, said: str) -> Judgement:
    if look.seen.p_value <= look.bar and counts(look.seen, look.threshold):
        worse = (look.seen.shift > 0.0) == (better == "lower")
        verdict: Verdict = "regressed" if worse else "improved"
        return look.judged(verdict, said)
    return look.quiet()
