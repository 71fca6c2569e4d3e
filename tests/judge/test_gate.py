"""The gate: what it finds, what it leaves alone, and what it says when it cannot know."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpwatch.judge.model import thresholds
from warpwatch.judge.pairs.gate import (
    FALSE_ALARM_RATE,
    Gate,
    judge_exact,
    judge_pairs,
)
from warpwatch.judge.pairs.plan import Plan
from warpwatch.judge.pairs.stored_runs import judge_groups, judge_stored
from warpwatch.judge.series.noise import classify
from warpwatch.judge.statistics import synthetic
from warpwatch.judge.statistics.stored import Stored

LATENCY = thresholds.load().of("latency_cold")


def run_gate(kind: synthetic.Kind, sigma: float, change: float, seed: int) -> tuple[Gate, int]:
    """Draw pairs in random order, as many as the gate asks for."""
    random = np.random.default_rng(seed)
    runs = np.exp(synthetic.noise(kind, 48, sigma, random)).reshape(24, 2)
    swapped = random.random(24) < 0.5
    runs[swapped] = runs[swapped][:, ::-1]
    base, head = 100.0 * runs[:, 0], 100.0 * runs[:, 1] * (1.0 + change)
    pairs = 2
    while True:
        gate = judge_pairs(base[:pairs], head[:pairs], "lower", LATENCY)
        if not gate.wanted:
            return gate, pairs
        assert pairs < gate.wanted <= 24
        pairs = gate.wanted


def test_two_percent_at_one_percent_noise_is_seen_within_24_pairs() -> None:
    verdicts = [run_gate("lognormal", 0.01, 0.02, seed)[0].judgement.verdict for seed in range(60)]
    assert verdicts.count("regressed") >= 55
    assert verdicts.count("improved") == 0


def test_equal_code_alarms_almost_never() -> None:
    verdicts = [run_gate("lognormal", 0.01, 0.0, seed)[0].judgement.verdict for seed in range(120)]
    alarms = verdicts.count("regressed") + verdicts.count("improved")
    assert alarms <= 2  # 120 * FALSE_ALARM_RATE is a quarter
    assert FALSE_ALARM_RATE <= 0.002


def test_counters_need_few_pairs() -> None:
    gate, pairs = run_gate("lognormal", 0.001, 0.02, seed=4)
    assert gate.judgement.verdict == "regressed"
    assert pairs <= 12
    assert gate.judgement.ratio == pytest.approx(1.02, abs=0.002)
    quiet, pairs = run_gate("lognormal", 0.001, 0.0, seed=4)
    assert quiet.judgement.verdict == "unchanged"
    assert pairs <= 8
    assert quiet.judgement.smallest_seen < 0.005


def test_an_alarm_is_confirmed_by_fresh_pairs_or_does_not_count() -> None:
    random = np.random.default_rng(1)
    base = 100.0 + random.normal(0, 0.5, 24)
    head = 100.0 + random.normal(0, 0.5, 24)
    head[:6] += 6.0  # a disturbance that hit six runs of head and went away
    assert judge_pairs(base[:6], head[:6], "lower", LATENCY).wanted in (8, 10)
    closed = judge_pairs(base, head, "lower", LATENCY)
    assert closed.judgement.verdict == "inconclusive"
    assert "did not confirm" in closed.judgement.reason


def test_a_machine_too_noisy_is_inconclusive_and_says_what_it_would_have_seen() -> None:
    gate, pairs = run_gate("lognormal", 0.1, 0.0, seed=3)
    assert gate.judgement.verdict == "inconclusive"
    assert gate.judgement.smallest_seen > 0.05
    assert "even 24 pairs would only have seen a change of" in gate.judgement.reason
    assert pairs == 8  # no further batch is asked for: none could decide it
    assert gate.judgement.more_pairs > 24 - 8


def test_a_noisy_machine_that_shows_a_large_change_goes_on() -> None:
    verdicts = [run_gate("plain", 0.04, 0.15, seed)[0].judgement.verdict for seed in range(30)]
    assert verdicts.count("regressed") >= 28


def test_three_percent_at_half_a_percent_of_noise_are_decided_in_eight_pairs() -> None:
    found = [run_gate("plain", 0.005, 0.03, seed) for seed in range(60)]
    assert all(gate.judgement.verdict == "regressed" for gate, _ in found)
    assert sum(pairs <= 8 for _, pairs in found) >= 58
    equal = [run_gate("plain", 0.005, 0.0, seed) for seed in range(60)]
    assert all(gate.judgement.verdict == "unchanged" for gate, _ in equal)
    assert sum(pairs <= 8 for _, pairs in equal) >= 52


def test_one_percent_of_cycles_is_decided_in_eight_pairs() -> None:
    cycles = thresholds.load().of("sm_cycles")
    random = np.random.default_rng(12)
    quick = 0
    for _ in range(60):
        base, head = 1e6 * np.exp(0.002 * random.standard_normal((2, 24)))
        gate = judge_pairs(base, 1.01 * head, "lower", cycles)
        assert gate.judgement.verdict == "regressed"
        quick += gate.judgement.pairs <= 8
    assert quick >= 57


def test_an_absurd_bound_is_none() -> None:
    """Two runs of one side that lie a thousand times apart say nothing about a change."""
    wild = judge_pairs([1.0, 1e9, 1e3] * 8, [1e6, 1.0, 1e12] * 8, "lower", LATENCY).judgement
    assert wild.verdict == "inconclusive"
    assert wild.smallest_seen == math.inf
    assert wild.more_pairs == 0
    assert "only have seen a change beyond 1000%" in wild.reason
    assert "e+" not in wild.reason
    zero = judge_groups([0.0] * 6, [0.0, 0.1] * 3, "lower", LATENCY)
    assert zero.smallest_seen == math.inf  # nothing is a share of zero
    groups = judge_groups([1.0, 1e9, 1e3] * 8, [1e6, 1.0, 1e12] * 8, "lower", LATENCY)
    assert "only a change beyond 1000% would have been seen" in groups.reason


def test_higher_may_be_better() -> None:
    base, head = [50.0 + i % 3 * 0.1 for i in range(24)], [45.0 + i % 3 * 0.1 for i in range(24)]
    assert judge_pairs(base, head, "higher", LATENCY).judgement.verdict == "regressed"
    assert judge_pairs(head, base, "higher", LATENCY).judgement.verdict == "improved"


def test_a_side_without_values_is_no_number() -> None:
    nothing = [math.nan] * 2
    assert judge_pairs([1.0, 1.0], nothing, "lower", LATENCY).judgement.verdict == "missing"
    new = judge_pairs(nothing, [1.0, 1.0], "lower", LATENCY).judgement
    assert new.verdict == "not applicable"
    with pytest.raises(ValueError, match="as many base as head"):
        judge_pairs([1.0], [], "lower", LATENCY)


def test_exact_values() -> None:
    assert judge_exact(1, 3, "lower", LATENCY).verdict == "regressed"
    assert judge_exact(0, 64, "lower", LATENCY).verdict == "regressed"
    assert judge_exact(0, 0, "lower", LATENCY).verdict == "unchanged"
    assert judge_exact(2, 1, "higher", LATENCY).verdict == "regressed"
    assert judge_exact(100.0, 100.05, "lower", LATENCY).verdict == "unchanged"
    assert judge_exact(1, None, "lower", LATENCY).verdict == "missing"
    assert judge_exact(None, 1, "lower", LATENCY).verdict == "not applicable"


def test_stored_runs_are_held_to_the_same_bar() -> None:
    random = np.random.default_rng(7)
    base, head = 100.0 + random.normal(0, 1, 20), 105.0 + random.normal(0, 1, 20)
    assert judge_groups(base, head, "lower", LATENCY).verdict == "regressed"
    few = judge_groups(base[:3], head[:3], "lower", LATENCY)
    assert few.verdict == "inconclusive"
    assert "3 runs a side can prove nothing" in few.reason


odd = st.lists(
    st.one_of(st.floats(allow_nan=True, allow_infinity=True), st.sampled_from([0.0, 1.0, -1.0])),
    min_size=0,
    max_size=24,
)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(odd, odd)
def test_no_pair_is_too_odd(base: list[float], head: list[float]) -> None:
    size = min(len(base), len(head))
    gate = judge_pairs(base[:size], head[:size], "lower", LATENCY)
    assert gate.wanted == 0 or gate.wanted > size
    judge_groups(base, head, "higher", LATENCY)


def test_a_smaller_budget_keeps_the_confirmation() -> None:
    assert [pairs for pairs, _ in Plan().within(16).explore] == [3, 4, 5, 6, 8, 12]
    assert [pairs for pairs, _ in Plan().within(8).explore] == [3, 4, 5, 6]
    with pytest.raises(ValueError, match="at least 5"):
        Plan().within(4)


def test_two_fresh_pairs_confirm_at_the_end_of_the_first_batch_and_four_after_it() -> None:
    assert list(Plan().confirming(6)) == [8, 10, 14, 18, 22]
    assert list(Plan().confirming(8)) == [12, 16, 20, 24]
    assert list(Plan().within(7).confirming(5)) == [7]
    assert list(Plan().known().confirming(1)) == [3, 5, 8, 9, 13, 17]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("lognormal", "quiet"),
        ("bimodal", "modal"),
        ("autocorrelated", "autocorrelated"),
        ("gpu-like", "autocorrelated"),
    ],
)
def test_noise_has_a_class(kind: synthetic.Kind, name: str) -> None:
    random = np.random.default_rng(8)
    kinds = [classify(synthetic.series(kind, 300, 0.01, random).values).kind for _ in range(20)]
    assert kinds.count(name) >= 12


def test_the_other_classes() -> None:
    random = np.random.default_rng(9)
    assert classify([7] * 50).kind == "discrete"
    assert classify(random.integers(3, 5, 100).tolist()).kind == "discrete"
    assert classify((100 + random.exponential(1.0, 300)).tolist()).kind == "skewed"
    spiky = np.where(random.random(300) < 0.1, 130.0, 100.0 + random.normal(0, 1, 300))
    assert classify(spiky.tolist()).kind == "spiky"
    assert classify([]).points == 0


def test_every_mistake_of_a_threshold_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "thresholds.toml"
    file.write_text(
        "schema_version = 2\nfalse_discovery_rate = 1.5\nnonsense = 1\n"
        "[default]\nrelative = -1\nabsolut = 0\n[metric.latency_us]\nrelative = true\n"
    )
    with pytest.raises(ValueError) as caught:
        thresholds.load(file)
    for part in (
        "schema_version: expected 1, got 2",
        "false_discovery_rate",
        "nonsense: unknown key",
        "[default] relative: expected a number",
        "[default] absolut: unknown key",
        "[default] resolve: is missing",
        "[metric.latency_us] relative",
    ):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("head", "width", "wander", "verdict"),
    [
        (110.0, 0.005, 0.0, "regressed"),
        (90.0, 0.005, 0.0, "improved"),
        (100.4, 0.0005, 0.0, "unchanged"),  # clear, but below the 1 % that counts
        (103.0, 0.05, 0.0, "inconclusive"),  # too noisy to see the 3 % asked for
        (103.0, 0.002, 0.01, "inconclusive"),  # processes of one commit lie as far apart
        (103.0, 0.002, 0.001, "regressed"),
        (math.nan, 0.005, 0.0, "missing"),
    ],
)
def test_stored_intervals_are_judged_by_the_same_rules(
    head: float, width: float, wander: float, verdict: str
) -> None:
    def side(value: float) -> Stored:
        return Stored(value, value * (1 - width), value * (1 + width))

    found = judge_stored(side(100.0), side(head), "lower", LATENCY, wander)
    assert found.verdict == verdict


@pytest.mark.parametrize(
    ("low", "high", "reason"),
    [
        (
            math.nan,
            math.nan,
            "no samples were stored, and too few values to say how far they wander",
        ),
        (-5.0, 205.0, "an interval reaches to 0 or has no end"),
        (-math.inf, math.inf, "an interval reaches to 0 or has no end"),
    ],
)
def test_an_interval_that_says_nothing_is_named(low: float, high: float, reason: str) -> None:
    found = judge_stored(Stored(100.0, low, high), Stored(110.0, 109.0, 111.0), "lower", LATENCY)
    assert (found.verdict, found.reason) == ("inconclusive", reason)


@pytest.mark.parametrize(
    ("head", "lone", "verdict"),
    [
        (130.0, 0.001, "regressed"),
        (70.0, 0.001, "improved"),
        (100.1, 0.001, "unchanged"),
        (130.0, 0.1, "inconclusive"),  # it wanders as far
        (130.0, math.nan, "inconclusive"),
    ],
)
def test_single_values_are_held_against_how_far_their_history_wanders(
    head: float, lone: float, verdict: str
) -> None:
    sides = [Stored(value, math.nan, math.nan) for value in (100.0, head)]
    assert judge_stored(sides[0], sides[1], "lower", LATENCY, lone=lone).verdict == verdict
