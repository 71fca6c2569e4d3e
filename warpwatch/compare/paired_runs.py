"""Base and head measured in turns, in fresh processes, until every series is judged."""

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
from warpwatch.judge.model.thresholds import Thresholds
from warpwatch.judge.pairs.gate import Gate, Judgement, judge_exact, judge_groups, judge_pairs
from warpwatch.judge.pairs.plan import Plan
from warpwatch.judge.pairs.run_verdict import Judged
from warpwatch.session import versions

Side = Literal["base", "head"]
Measure = Callable[[Side, Sequence[str]], Mapping[str, Outcome]]
Tell = Callable[[str], None]

# Evidence in a history, where a formula may change for a reason; a pull request answers for it.
ALSO_JUDGED = frozenset({"relative_error"})

# Counters repeat to 0.1 %: three pairs prove what takes clocks six and more.
COUNTER_PLAN = Plan(explore=((3, 0.002), (6, 0.004), (8, 0.006), (12, 0.01)), confirm=(3, 6, 8, 12))


# Their processes are made ready together, so that nothing else goes on while one of them measures.
PREPARED_PAIRS = 2


@dataclass
class _Series:
    """The runs of one metric of one workload; a run without a value is NaN."""

    metric: metrics.Metric
    base: list[float] = field(default_factory=list)
    head: list[float] = field(default_factory=list)
    gate: Gate | None = None


@dataclass(frozen=True)
class Duel:
    """What to measure and when to stop. ``seconds`` is the budget of the whole duel; once ``stop``
    is set, no further pair begins. ``prepare`` is told whose turns come, some pairs at a time."""

    instrument: str
    measure: Measure
    plan: Plan
    seconds: float
    seed: int = 0
    prepare: Callable[[Sequence[Side]], None] = lambda _: None
    stop: threading.Event = field(default_factory=threading.Event)


def fight(duel: Duel, workloads: Sequence[str], limits: Thresholds, tell: Tell) -> list[Judged]:
    """Judge every metric that the outcomes carry, of all ``workloads``.

    A workload is measured for as long as one of its verdict series is open. Series that are open
    when the time is up are inconclusive.
    """
    series: dict[str, dict[str, _Series]] = {name: {} for name in workloads}
    details: dict[tuple[str, Side], str] = {}
    done = dict.fromkeys(workloads, 0)
    started = time.monotonic()
    rounds = duel.plan.most_pairs
    turns = [_sides(base_first) for base_first in versions.order(rounds, duel.seed)]
    for number, sides in enumerate(turns, start=1):
        waiting = [name for name in workloads if _is_open(series[name], done[name])]
        if not waiting or time.monotonic() - started > duel.seconds or duel.stop.is_set():
            break
        if number % PREPARED_PAIRS == 1:
            coming = turns[number - 1 : number - 1 + PREPARED_PAIRS]
            duel.prepare([side for pair in coming for side in pair])
        tell(f"{duel.instrument}: pair {number} of at most {rounds}, {len(waiting)} workloads")
        outcomes = {side: duel.measure(side, waiting) for side in sides}
        for name in waiting:
            for side in sides:
                outcome = outcomes[side].get(name)
                if outcome is not None and outcome.status != "ok":
                    details[name, side] = f"{side}: {outcome.status}, {outcome.detail}"
            _take(series[name], outcomes["base"].get(name), outcomes["head"].get(name), done[name])
            done[name] += 1
            for one in series[name].values():
                _look(one, done[name], limits, duel.plan)
    return [
        _finish(duel, name, one, limits, details)
        for name in workloads
        for one in series[name].values()
    ]


def _sides(base_first: bool) -> tuple[Side, Side]:
    return ("base", "head") if base_first else ("head", "base")


def _is_open(series: Mapping[str, _Series], done: int) -> bool:
    if not series:
        return done < 2  # nothing was read yet; two tries, then it is given up
    gates = [one.gate for one in series.values() if _is_judged(one.metric)]
    return any(gate is None or gate.wanted > done for gate in gates)


def _is_judged(metric: metrics.Metric) -> bool:
    return (metric.role == "verdict" or metric.name in ALSO_JUDGED) and not metric.exact


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


def _look(one: _Series, done: int, limits: Thresholds, plan: Plan) -> None:
    if not _is_judged(one.metric) or (one.gate is not None and not one.gate.wanted):
        return
    if one.gate is None or done >= one.gate.wanted:
        better = one.metric.better or "lower"
        one.gate = judge_pairs(one.base, one.head, better, limits.of(one.metric.name), plan)


def _finish(
    duel: Duel,
    workload: str,
    one: _Series,
    limits: Thresholds,
    details: Mapping[tuple[str, Side], str],
) -> Judged:
    metric, threshold = one.metric, limits.of(one.metric.name)
    better = metric.better or "lower"
    base, head = _median(one.base), _median(one.head)
    if metric.exact:
        judgement: Judgement = judge_exact(base, head, better, threshold)
    elif one.gate is not None:
        judgement = one.gate.judgement
        if one.gate.wanted:
            reason = f"the time ended after {len(one.base)} pairs: {judgement.reason}"
            judgement = replace(judgement, verdict="inconclusive", reason=reason)
    else:
        judgement = judge_groups(one.base, one.head, better, threshold)
    if judgement.verdict in ("missing", "not applicable"):
        side: Side = "head" if math.isnan(head) else "base"
        judgement = replace(judgement, reason=details.get((workload, side), judgement.reason))
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
    )


def _median(values: Sequence[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return statistics.median(finite) if finite else math.nan
