"""Calls below 20 us are judged by the cycles of their kernels, longer ones by their time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.judge.test_findings import COUNT, history
from warpwatch.compare import paired_runs
from warpwatch.instruments.outcome import Outcome
from warpwatch.judge.findings.judgement import judge
from warpwatch.judge.model import thresholds
from warpwatch.judge.pairs.commits import judge_commits
from warpwatch.judge.pairs.plan import Plan
from warpwatch.judge.pairs.run_verdict import Judged, RunVerdict, by_their_length, settle
from warpwatch.judge.results.history import History, with_short_calls

LIMITS = thresholds.load()
Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


def fought(
    us: float, faster: float = 1.0, fewer: float = 1.0, counted: bool = True
) -> tuple[RunVerdict, int]:
    """A gate of one call: times of processes lie 3 % apart, cycles 0.5 %; ``faster`` and ``fewer``
    are what head has of base. Its verdict, and the pairs it took."""
    random = np.random.default_rng(5)
    pairs = 0

    def measure(side: paired_runs.Side, names: Sequence[str]) -> Mapping[str, Outcome]:
        nonlocal pairs
        pairs += side == "base"
        time, cycles = us * np.exp(random.normal(0, 0.03)), 1e4 * np.exp(random.normal(0, 0.005))
        if side == "head":
            time, cycles = time * faster, cycles * fewer
        samples = {"latency_cold": (float(time),)}
        if counted:
            samples |= {"kernel_cycles": (float(cycles),), "sm_cycles": (float(cycles) / 2,)}
        return {name: Outcome(name, "ok", "", samples) for name in names}

    duel = paired_runs.Duel("latency", paired_runs.one_by_one(measure), Plan(), seconds=300.0)
    judged = paired_runs.fight(duel, ["call"], LIMITS, lambda _: None)
    return settle(by_their_length(judged), 0.05), pairs


def said(verdict: RunVerdict) -> dict[str, Judged]:
    return {one.metric: one for one in verdict.judged if not one.evidence}


def test_cycles_decide_where_a_call_is_short_and_its_time_is_not_waited_for() -> None:
    equal, pairs = fought(8.0)
    assert list(said(equal)) == ["kernel_cycles"]
    assert (equal.exit_code, pairs) == (0, 8)
    slower, _ = fought(8.0, fewer=1.04)
    (one,) = said(slower).values()
    assert one.judgement.verdict == "regressed"
    assert "a call below 20 us, time " in one.judgement.reason
    assert slower.exit_code == 1
    time = next(one for one in slower.judged if one.metric == "latency_cold")
    assert time.judgement.reason.endswith("calls below 20 us are judged by kernel_cycles")


def test_a_launch_that_takes_longer_is_no_slower_kernel() -> None:
    verdict, _ = fought(8.0, faster=1.3)
    assert verdict.exit_code == 0


def test_the_time_decides_where_nobody_counts_and_where_a_call_is_long() -> None:
    uncounted, pairs = fought(8.0, counted=False)
    assert list(said(uncounted)) == ["latency_cold"]
    assert pairs > 8  # with its honest noise
    long, _ = fought(80.0, faster=1.3)
    assert set(said(long)) == {"latency_cold", "sm_cycles"}
    assert long.exit_code == 1


def test_a_call_that_was_short_at_base_or_is_at_head_is_judged_by_cycles() -> None:
    for us, faster in ((19.0, 1.4), (26.0, 0.7)):
        verdict, _ = fought(us, faster=faster, fewer=faster)
        assert list(said(verdict)) == ["kernel_cycles"]
        worse = faster > 1
        assert verdict.judged[0].judgement.verdict == ("regressed" if worse else "improved")


def stored(time: Floats, cycles: Floats | None, busy: Floats | None = None) -> History:
    rows = {"latency_cold of w": time}
    rows |= {} if cycles is None else {"kernel_cycles of w": cycles}
    rows |= {} if busy is None else {"sm_cycles of w": busy}
    made = history(rows)
    return replace(made, tables=tuple(map(with_short_calls, made.tables)))


def wandering(level: float, seed: int, spread: float, step: float = 0.0) -> Floats:
    found = level * np.exp(np.random.default_rng(seed).normal(0, spread, COUNT))
    found[30:] *= 1 + step
    return found


def test_a_step_of_the_launch_alone_is_no_finding() -> None:
    cycles = wandering(1e4, 1, 0.005)
    late = wandering(8.0, 2, 0.02, step=0.2)
    assert [one.verdict for one in judge(stored(late, None)).findings] == ["regressed"]
    found = judge(stored(late, cycles, busy=wandering(8e3, 3, 0.01, step=0.5)))
    assert found.findings == ()
    meaning = found.history.tables[0].series[0].meaning
    assert (meaning.role, meaning.explains) == (
        "evidence",
        "evidence: calls below 20 us are judged by kernel_cycles",
    )
    # A longer call is judged by time, and cycles from start to end are what explains.
    assert len(judge(stored(10 * late, cycles)).findings) == 1


def test_a_step_of_the_kernel_is_a_finding_that_costs_its_time() -> None:
    made = stored(wandering(8.0, 2, 0.06), wandering(1e4, 1, 0.005, step=0.04))
    (one,) = judge(made).findings
    assert one.verdict == "regressed"
    assert one.cost == pytest.approx(0.04 * 8e-6, rel=0.2)


def test_one_failure_to_count_changes_nothing_and_the_loss_of_counters_does() -> None:
    late = wandering(8.0, 2, 0.02, step=0.2)
    cycles = wandering(1e4, 1, 0.005)
    cycles[-1] = np.nan
    assert stored(late, cycles).tables[0].series[0].meaning.role == "evidence"
    cycles[-6:] = np.nan
    assert stored(late, cycles).tables[0].series[0].meaning.role == "verdict"


def test_two_recorded_commits_are_judged_by_the_same_rule() -> None:
    made = stored(wandering(8.0, 2, 0.001, step=0.2), wandering(1e4, 1, 0.001))
    base, head = (made.commits[at].hash for at in (10, 50))
    compared = judge_commits(made, base, head, LIMITS)
    roles = {one.series.meaning.metric: one.series.meaning.role for one in compared.comparisons}
    assert roles == {"latency_cold": "evidence", "kernel_cycles": "verdict"}
    assert compared.exit_code == 0
    time = next(c for c in compared.comparisons if c.series.meaning.metric == "latency_cold")
    assert "calls below 20 us are judged by kernel_cycles" in time.reason
    slower = stored(wandering(8.0, 2, 0.001), wandering(1e4, 1, 0.001, step=0.04))
    assert judge_commits(slower, base, head, LIMITS).exit_code == 1
