"""Base and head measured interleaved, in processes of their own, until every series is judged."""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from warpwatch.config import metrics
from warpwatch.instruments.outcome import Outcome
from warpwatch.judge.model import short_calls
from warpwatch.judge.model.thresholds import Thresholds
from warpwatch.judge.pairs.gate import Gate, judge_exact, judge_pairs
from warpwatch.judge.pairs.judgement import Judgement
from warpwatch.judge.pairs.plan import Plan
from warpwatch.judge.pairs.run_verdict import Judged
from warpwatch.judge.pairs.stored_runs import judge_groups
from warpwatch.judge.statistics.paired import Prior
from warpwatch.session import versions

Side = Literal["base", "head"]
Pair = Mapping[str, Mapping[str, Outcome]]  # by side and workload
# Of each pair the sides in their order, and the workloads; one pair a turn, fewer after a stop.
Measure = Callable[[Sequence[tuple[Side, Side]], Sequence[str]], Sequence[Pair]]
Tell = Callable[[str], None]

# Evidence in a history, where a formula may change for a reason; a pull request answers for it.
ALSO_JUDGED = frozenset({"relative_error"})
# On the same inputs a kernel repeats these to the last digit, whatever process it runs in.
READ_ONCE = frozenset({"relative_error", "peak_bytes"})

# Counters repeat to 0.1 %, and a batch reads them of six pairs: fewer prove that nothing changed.
COUNTERS = frozenset({"sm_cycles", "instructions", "dram_bytes", "tensor_pipe"})
COUNTER_PLAN = Plan(least_quiet=6)


@dataclass
class _Series:
    """The runs of one metric of one workload; a run without a value is NaN."""

    metric: metrics.Metric
    base: list[float] = field(default_factory=list)
    head: list[float] = field(default_factory=list)
    gate: Gate | None = None


@dataclass(frozen=True)
class Duel:
    """What to measure and when to stop. ``together`` pairs are measured at a time, on ``cards`` in
    turn. ``seconds`` is the budget of the whole duel; once ``stop`` is set, no further pair begins.
    ``priors`` say by workload and metric how far earlier runs lay apart."""

    instrument: str
    measure: Measure
    plan: Plan
    seconds: float
    seed: int = 0
    together: int = 1
    cards: int = 1
    priors: Mapping[tuple[str, str], Prior] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)


def one_by_one(measure: Callable[[Side, Sequence[str]], Mapping[str, Outcome]]) -> Measure:
    """Pairs of a measure that reads one side at a time, in a fresh process each."""

    def pairs(turns: Sequence[tuple[Side, Side]], names: Sequence[str]) -> list[Pair]:
        return [{side: measure(side, names) for side in sides} for sides in turns]

    return pairs


def fight(duel: Duel, workloads: Sequence[str], limits: Thresholds, tell: Tell) -> list[Judged]:
    """Judge every metric that the outcomes carry, of all ``workloads``.

    A workload is measured for as long as one of its verdict series is open. Series that are open
    when the time is up are inconclusive.
    """
    series: dict[str, dict[str, _Series]] = {name: {} for name in workloads}
    details: dict[tuple[str, str], str] = {}
    done = dict.fromkeys(workloads, 0)
    started = time.monotonic()
    firsts = versions.order(duel.plan.most_pairs, duel.seed, duel.cards)
    turns = [_sides(first) for first in firsts]
    number = rounds = 0
    while number < len(turns):
        waiting = [name for name in workloads if _is_open(series[name], done[name])]
        if not waiting or time.monotonic() - started > duel.seconds or duel.stop.is_set():
            break
        wanted = max(_wanted(series[name], done[name], duel.plan) for name in waiting)
        batch = turns[number : number + min(duel.together, wanted)]
        which = f"pairs {number + 1} to {number + len(batch)}"
        if len(batch) == 1:
            which = f"pair {number + 1}"
        tell(f"{duel.instrument}: {which} of at most {len(turns)}, {len(waiting)} workloads")
        for pair in duel.measure(batch, waiting):
            for name in waiting:
                for side, outcomes in pair.items():
                    outcome = outcomes.get(name)
                    if outcome is not None and outcome.status != "ok":
                        details[name, side] = f"{side}: {outcome.status}, {outcome.detail}"
                base, head = (pair.get(side, {}).get(name) for side in ("base", "head"))
                _take(series[name], base, head, done[name])
                done[name] += 1
                for one in series[name].values():
                    prior = duel.priors.get((name, one.metric.name))
                    _look(one, limits, duel.plan, prior)
        number, rounds = number + len(batch), rounds + 1
    seconds = (time.monotonic() - started) / max(rounds, 1)
    return [
        _finish(duel, name, one, limits, details, seconds)
        for name in workloads
        for one in series[name].values()
    ]


def _wanted(series: Mapping[str, _Series], done: int, plan: Plan) -> int:
    """Pairs to measure before the next look; at first as many as decide most series."""
    if not done:
        return plan.first
    gates = [one.gate for one in _deciding(series)]
    return max([1, *(gate.wanted - done for gate in gates if gate is not None)])


def plan_of(metric: str, plan: Plan) -> Plan:
    """Counters have a plan of their own; ``plan`` is of what takes time."""
    return COUNTER_PLAN if metric in COUNTERS else plan


def _sides(base_first: bool) -> tuple[Side, Side]:
    return ("base", "head") if base_first else ("head", "base")


def _is_open(series: Mapping[str, _Series], done: int) -> bool:
    if not series:
        return done < 2  # nothing was read yet; two tries, then it is given up
    gates = [one.gate for one in _deciding(series)]
    return any(gate is None or gate.wanted > done for gate in gates)


def _deciding(series: Mapping[str, _Series]) -> list[_Series]:
    """The series that are waited for: of a short call not its time, where cycles were counted."""
    short = _is_short(series)
    return [
        one
        for name, one in series.items()
        if _is_judged(one.metric) and not short_calls.explains(name, short)
    ]


def _is_short(series: Mapping[str, _Series]) -> bool:
    time, cycles = (series.get(name) for name in (short_calls.TIME, short_calls.CYCLES))
    if time is None or cycles is None:
        return False
    counted = math.isfinite(_median(cycles.base)) and math.isfinite(_median(cycles.head))
    return short_calls.is_short(min(_median(time.base), _median(time.head)), counted)


def _is_judged(metric: metrics.Metric) -> bool:
    judged = metric.role == "verdict" or metric.name in ALSO_JUDGED
    return judged and not metric.exact and metric.name not in READ_ONCE


def _take(
    series: dict[str, _Series], base: Outcome | None, head: Outcome | None, done: int
) -> None:
    for outcome in (base, head):
        for name in outcome.samples if outcome is not None else ():
            blank = [math.nan] * done
            series.setdefault(name, _Series(metrics.get(name), list(blank), list(blank)))
    for name, one in series.items():
        for outcome, values in ((base, one.base), (head, one.head)):
            samples = outcome.samples.get(name) if outcome is not None else None
            values.append(statistics.median(samples) if samples else math.nan)


def _look(one: _Series, limits: Thresholds, plan: Plan, prior: Prior | None) -> None:
    if not _is_judged(one.metric) or (one.gate is not None and not one.gate.wanted):
        return
    better = one.metric.better or "lower"
    name = one.metric.name
    plan = plan_of(name, plan)
    one.gate = judge_pairs(one.base, one.head, better, limits.of(name), plan, prior)


def _finish(
    duel: Duel,
    workload: str,
    one: _Series,
    limits: Thresholds,
    details: Mapping[tuple[str, str], str],
    seconds: float,
) -> Judged:
    """What is said of one series; a round of ``together`` pairs took ``seconds``."""
    metric, threshold = one.metric, limits.of(one.metric.name)
    better = metric.better or "lower"
    base, head = _median(one.base), _median(one.head)
    if metric.exact or metric.name in READ_ONCE:
        judgement: Judgement = judge_exact(base, head, better, threshold)
    elif one.gate is not None:
        judgement = one.gate.judgement
        if one.gate.wanted:
            reason = f"the time ended after {len(one.base)} pairs: {judgement.reason}"
            judgement = replace(judgement, verdict="inconclusive", reason=reason)
    else:
        judgement = judge_groups(one.base, one.head, better, threshold)
    if judgement.verdict in ("missing", "not applicable"):
        side = "head" if math.isnan(head) else "base"
        judgement = replace(judgement, reason=details.get((workload, side), judgement.reason))
    more = math.nan
    if judgement.verdict == "inconclusive" and judgement.more_pairs:
        more = math.ceil(judgement.more_pairs / duel.together) * seconds
        whole = len(one.base) + judgement.more_pairs
        said = f"{judgement.reason}; about {more:.0f} s more would decide ({whole} pairs in all)"
        judgement = replace(judgement, reason=said)
    return Judged(
        metric=metric.name,
        subject=workload,
        unit=metric.unit,
        base=base,
        head=head,
        judgement=judgement,
        exact=metric.exact,
        instrument=duel.instrument,
        evidence=metric.role == "evidence" and metric.name not in ALSO_JUDGED,
        seconds_more=more,
    )


def _median(values: Sequence[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return statistics.median(finite) if finite else math.nan
