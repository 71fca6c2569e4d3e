"""All series of one comparison together: how many alarms are expected to be false, and whether
they look like noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from scipy import special

from warpwatch.judge.model import short_calls
from warpwatch.judge.model.core import Verdict
from warpwatch.judge.predicted import verdict as predicted_verdict
from warpwatch.judge.predicted.verdict import is_counted_in

from .gate import FALSE_ALARM_RATE
from .judgement import Judgement

_SYMMETRY_LEAST = 6  # workloads with an alarm; fewer say nothing about their symmetry
_SYMMETRY_P = 0.1
# What a comparison says where its alarms look so.
LOOKS_LIKE_NOISE = (
    "as many workloads improved as regressed a little: noise, so none of those counts"
)
# What a machine's state can move: the clock of one commit measured 47 times on an H200 spans 14 %.
_STATE = math.log(1.15)

PREDICTED = predicted_verdict.METRIC
# What a kernel does with its time. A kernel that fails, a worse answer and more memory are no price
# that a shorter time pays.
_OF_TIME = frozenset(
    (
        *("launches", "copied_bytes", "spilled_bytes", "tensor_core_level", "async_copy_level"),
        *("blocks_in_flight", "advisories", "bound_us"),
    )
)


@dataclass(frozen=True)
class Judged:
    """One series of the comparison. ``evidence`` explains an alarm and never raises one.

    ``seconds_more`` of measuring would decide an inconclusive one; NaN where nobody can tell.
    """

    metric: str
    subject: str
    unit: str
    base: float
    head: float
    judgement: Judgement
    exact: bool
    instrument: str
    evidence: bool = False
    seconds_more: float = math.nan


@dataclass(frozen=True)
class RunVerdict:
    """``expected_false`` is the number of alarms that equal code would have raised."""

    judged: tuple[Judged, ...]
    expected_false: float
    symmetric: bool

    @property
    def exit_code(self) -> int:
        """0 clean, 1 regressed or missing, 3 inconclusive, mixed or nothing measured."""
        verdicts = {one.judgement.verdict for one in self.judged if not one.evidence}
        if verdicts & {"regressed", "missing"}:
            return 1
        open_ = verdicts & {"inconclusive", "mixed"}
        return 0 if verdicts & {"unchanged", "improved"} and not open_ else 3


def settle(
    judged: Sequence[Judged], false_discovery_rate: float, measured_on: str | None = None
) -> RunVerdict:
    """Hold the alarms of noisy series to the false discovery rate over the whole run.

    What falls out becomes inconclusive. So do all noisy alarms of the size that a machine's state
    can make when about as many workloads improve as regress: one change of code rarely does that,
    a machine that changes its state often does. What changed by more is the code, whatever others
    did. ``measured_on`` is the target that the measured card stands for: that a call became faster
    there outweighs what its compiled metrics say of that target.
    """
    noisy = [i for i, one in enumerate(judged) if not one.exact and not one.evidence]
    alarms = [i for i in noisy if judged[i].judgement.verdict in ("regressed", "improved")]
    kept = _benjamini_hochberg(
        {i: judged[i].judgement.p_value for i in alarms}, len(noisy), false_discovery_rate
    )
    small = {i for i in kept if not _beyond_state(judged[i].judgement.ratio)}
    votes = _votes([judged[i] for i in sorted(small)])
    up = votes.count("improved")
    symmetric = _looks_symmetric(up, len(votes) - up)
    settled = list(judged)
    for i in alarms:
        reason = ""
        if i not in kept:
            reason = f"one of {len(noisy)} series, and not clear enough for so many"
        elif symmetric and i in small:
            reason = f"{up} workloads improved and {len(votes) - up} regressed: it looks like noise"
        if reason:
            weaker = replace(judged[i].judgement, verdict="inconclusive", reason=reason)
            settled[i] = replace(judged[i], judgement=weaker)
    remaining = len(kept) - (len(small) if symmetric else 0)
    expected = min(FALSE_ALARM_RATE * len(noisy), float(remaining))
    return RunVerdict(tuple(_outweighed(settled, measured_on)), expected, symmetric)


def by_their_length(judged: Sequence[Judged]) -> list[Judged]:
    """The same series, each call judged by its time or, where it is short, by its cycles.

    Args:
        judged: All series of the measured calls.

    Returns:
        Those that only explain are evidence. Cycles that decide say how the time went.
    """
    places = {(one.subject, one.metric): one for one in judged}
    found = []
    for one in judged:
        time, cycles = (
            places.get((one.subject, name)) for name in (short_calls.TIME, short_calls.CYCLES)
        )
        counted = cycles is not None and math.isfinite(cycles.base - cycles.head)
        short = time is not None and short_calls.is_short(min(time.base, time.head), counted)
        reason = short_calls.explains(one.metric, short)
        if reason:
            found.append(_saying(replace(one, evidence=True, seconds_more=math.nan), reason))
        elif short and time is not None and one.metric == short_calls.CYCLES:
            went = f"{time.base:.4g} -> {time.head:.4g} us"
            found.append(_saying(one, f"a call below {short_calls.SHORT_US:.0f} us, time {went}"))
        else:
            found.append(one)
    return found


def _saying(one: Judged, more: str) -> Judged:
    reason = "; ".join(filter(None, (one.judgement.reason, more)))
    return replace(one, judgement=replace(one.judgement, reason=reason))


def _votes(alarms: Sequence[Judged]) -> list[Verdict]:
    """The verdict of each subject's clearest alarm: series of one call move together."""
    clearest: dict[str, Judged] = {}
    for one in alarms:
        known = clearest.get(one.subject)
        if known is None or one.judgement.p_value < known.judgement.p_value:
            clearest[one.subject] = one
    return [one.judgement.verdict for one in clearest.values()]


def of_time(subject: str, change: predicted_verdict.Change) -> Judged:
    """The predicted time of a call as a series of a comparison.

    Args:
        subject: The call and its target.
        change: Its predicted time at base and at head.

    Returns:
        Evidence, where the interval holds no change: :func:`settle` weighs the other metrics by it.
    """
    found = Judgement(
        verdict=change.verdict,
        ratio=change.after / change.before,
        interval=(change.low, change.high),
        p_value=0.0,
        pairs=1,
        smallest_seen=0.0,
        test="exact",
        noise="none",
        reason="equal" if change.verdict == "unchanged" else str(change),
    )
    return Judged(
        metric=PREDICTED,
        subject=subject,
        unit="us",
        base=change.before,
        head=change.after,
        judgement=found,
        exact=True,
        instrument="compiled",
        evidence=found.verdict == "inconclusive",
    )


def _outweighed(judged: Sequence[Judged], measured_on: str | None) -> list[Judged]:
    """The same series; where a kernel's metrics contradict each other, its time decides: the
    measured one where it got better, else the predicted one.

    Compiled metrics say what a kernel needs, not how long it takes. Where a time is predicted they
    are evidence of it. Where none is, nobody can tell what weighs more: those for the worse are
    mixed.
    """
    sides: dict[str, dict[Verdict, list[str]]] = {}
    times: dict[str, Judged] = {}
    faster: dict[str, Judged] = {}
    for one in judged:
        if one.metric == PREDICTED:
            times[one.subject] = one
        elif _is_of_time(one):
            sides.setdefault(one.subject, {}).setdefault(one.judgement.verdict, []).append(
                one.metric
            )
        elif _is_time(one) and one.judgement.verdict == "improved":
            faster[f"{one.subject} @ {measured_on}"] = one
    found = []
    for one in judged:
        is_worse = one.judgement.verdict == "regressed"
        if one.metric == PREDICTED or _is_of_time(one):
            better = sides.get(one.subject, {}).get("improved", [])
            if is_worse and (measured := faster.get(one.subject)):
                one = _paid(one, f"{measured.metric} got better on the card")
            elif time := times.get(one.subject):
                one = _beneath(one, time, better) if one.metric != PREDICTED else one
            elif is_worse and better:
                one = _mixed(one, better)
        found.append(one)
    return found


def _is_time(one: Judged) -> bool:
    return one.metric in (short_calls.TIME, short_calls.CYCLES) and not one.evidence


def _is_of_time(one: Judged) -> bool:
    return one.metric in _OF_TIME and one.exact and not one.evidence


def _beneath(one: Judged, time: Judged, better: Sequence[str]) -> Judged:
    """A metric of a call whose time is predicted: evidence of that, or an alarm by itself where
    the prediction is not sure and a form of code was lost."""
    if one.judgement.verdict not in ("regressed", "improved"):
        return one
    if time.judgement.verdict in ("regressed", "improved"):
        return replace(one, evidence=True)
    is_worse = one.judgement.verdict == "regressed"
    gained = [name for name in better if not is_counted_in(name, 0)]
    if not is_worse:
        return replace(one, evidence=True)
    if gained:
        return _mixed(one, gained)
    if not is_counted_in(one.metric, one.base):
        return one
    reason = f"what it makes of the time is not sure: {time.judgement.reason}"
    return replace(one, judgement=replace(one.judgement, verdict="inconclusive", reason=reason))


def _mixed(one: Judged, better: Sequence[str]) -> Judged:
    names = ", ".join(dict.fromkeys(better))
    reason = f"{names} got better: which weighs more is not known"
    return replace(one, judgement=replace(one.judgement, verdict="mixed", reason=reason))


def _paid(one: Judged, by: str) -> Judged:
    reason = f"outweighed: {by}"
    return replace(one, judgement=replace(one.judgement, verdict="unchanged", reason=reason))


def _benjamini_hochberg(p_values: dict[int, float], tests: int, rate: float) -> set[int]:
    kept: set[int] = set()
    ranked = sorted(p_values, key=lambda i: p_values[i])
    for rank, i in enumerate(ranked, start=1):
        if p_values[i] <= rate * rank / tests:
            kept = set(ranked[:rank])
    return kept


def _beyond_state(ratio: float) -> bool:
    """Whether a series changed by more than a machine's state explains."""
    return ratio > 0.0 and abs(math.log(ratio)) > _STATE


def _looks_symmetric(improved: int, regressed: int) -> bool:
    total = improved + regressed
    if total < _SYMMETRY_LEAST or not improved or not regressed:
        return False
    # Two-sided binomial test of one half: a high p-value is what equal numbers give.
    p_value = 2.0 * float(special.bdtr(min(improved, regressed), total, 0.5))
    return p_value > _SYMMETRY_P
