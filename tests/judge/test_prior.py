"""What earlier results say of the noise joins what a gate's own pairs show, unless it is wrong."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from tests.root import ROOT
from warpwatch.judge.model import thresholds
from warpwatch.judge.model.directions import Directions
from warpwatch.judge.pairs.gate import judge_pairs
from warpwatch.judge.pairs.plan import Plan
from warpwatch.judge.pairs.prior import MOST_WEIGHT, from_history
from warpwatch.judge.results.assembly import assemble
from warpwatch.judge.results.folders import read_folder
from warpwatch.judge.statistics.paired import Prior, compare

CYCLES = thresholds.load().of("sm_cycles")
KNOWN = Prior(0.001, 12.0)


def test_a_prior_and_the_runs_share_the_variance_by_their_degrees_of_freedom() -> None:
    base, head = [100.0, 100.2, 99.9, 100.1], [100.1, 100.0, 100.3, 99.8]
    plain = compare(base, head, "groups")
    joined = compare(base, head, "groups", Prior(0.002, 10.0))
    expected = 2 * 0.002**2 / 4
    share = (plain.freedom * plain.error**2 + 10.0 * expected) / (plain.freedom + 10.0)
    assert joined.freedom == pytest.approx(plain.freedom + 10.0)
    assert joined.error == pytest.approx(math.sqrt(share))
    assert joined.shift == plain.shift


def test_runs_that_lie_apart_far_more_than_the_prior_says_refute_it() -> None:
    base, head = [100.0, 104.0, 97.0, 101.0], [102.0, 96.0, 105.0, 99.0]
    assert compare(base, head, "groups", Prior(0.001, 12.0)) == compare(base, head, "groups")


def test_runs_that_lie_apart_far_less_than_the_prior_says_refute_it() -> None:
    base, head = 100.0 * np.exp(0.001 * np.random.default_rng(4).standard_normal((2, 8)))
    head *= 1.02
    assert compare(base, head, "groups", Prior(0.05, 12.0)) == compare(base, head, "groups")
    gate = judge_pairs(base, head, "lower", CYCLES, Plan(), Prior(0.05, 6.0))
    assert gate == judge_pairs(base, head, "lower", CYCLES, Plan())
    assert gate.judgement.verdict == "regressed"


def test_before_eight_pairs_an_alarm_stands_even_were_the_noise_twice_as_large() -> None:
    """A prior that is too small makes an alarm of one pair, and three pairs hardly refute it."""
    clear = judge_pairs(
        [100.0, 99.9, 100.1], [104.1, 104.0, 104.2], "lower", CYCLES, Plan(), Prior(0.001, 6.0)
    )
    assert (clear.wanted, clear.judgement.verdict) == (0, "regressed")
    near = judge_pairs(
        [100.0, 99.8, 100.2], [101.1, 101.3, 101.0], "lower", CYCLES, Plan(), Prior(0.0015, 6.0)
    )
    assert near.wanted > 3


def test_one_pair_says_something_where_the_noise_is_known_only() -> None:
    assert compare([100.0], [104.0], "groups").p_value == 1.0
    known = compare([100.0], [104.0], "groups", KNOWN)
    assert known.p_value < 1e-9
    assert known.error == pytest.approx(math.sqrt(2.0) * 0.001)
    assert compare([100.0], [-4.0], "groups", KNOWN).p_value == 1.0  # no ratio, no prior


def test_cycles_known_to_a_tenth_of_a_percent_raise_an_alarm_at_the_first_pair() -> None:
    plan = Plan()
    first = judge_pairs([100.0], [104.1], "lower", CYCLES, plan, KNOWN)
    assert first.wanted == 3  # two fresh ones to confirm it
    base, head = [100.0, 100.1, 99.9], [104.1, 104.0, 104.2]
    gate = judge_pairs(base, head, "lower", CYCLES, plan, KNOWN)
    assert (gate.wanted, gate.judgement.verdict) == (0, "regressed")
    assert judge_pairs([100.0], [104.1], "lower", CYCLES, plan).wanted == 3


def test_equal_cycles_are_called_so_after_four_pairs() -> None:
    base, head = [100.0, 100.1, 99.9, 100.0], [100.05, 100.0, 99.95, 100.1]
    gate = judge_pairs(base, head, "lower", CYCLES, Plan(), KNOWN)
    assert (gate.wanted, gate.judgement.verdict) == (0, "unchanged")


@pytest.mark.parametrize("wrong", [0.2, 1.0, 5.0])
def test_a_wrong_prior_raises_hardly_an_alarm(wrong: float) -> None:
    """Of identical versions whose noise is 1 %, while the prior says ``wrong`` times as much."""
    random = np.random.default_rng(5)
    limits = thresholds.load().of("latency_cold")
    alarms = 0
    for _ in range(400):
        base, head = 100.0 * np.exp(0.01 * random.standard_normal((2, 24)))
        taken = 1
        gate = judge_pairs(base[:1], head[:1], "lower", limits, None, Prior(0.01 * wrong, 12.0))
        while gate.wanted:
            taken = gate.wanted
            runs = (base[:taken], head[:taken])
            gate = judge_pairs(*runs, "lower", limits, None, Prior(0.01 * wrong, 12.0))
        alarms += gate.judgement.verdict in ("regressed", "improved")
    assert alarms <= 3


def test_the_published_history_says_how_far_each_series_wanders() -> None:
    folder = Path(ROOT, "reports", "published")
    history = assemble(read_folder(folder), ROOT, Directions())
    priors = from_history(history, "NVIDIA H200")
    cycles = {name: one for (name, metric), one in priors.items() if metric == "sm_cycles"}
    times = {name: one for (name, metric), one in priors.items() if metric == "latency_cold"}
    assert cycles and times
    assert all(0.0 < one.sigma < 1.0 and 1.0 < one.weight <= MOST_WEIGHT for one in times.values())
    both = cycles.keys() & times.keys()
    calmer = [cycles[name].sigma < times[name].sigma for name in both]
    assert sum(calmer) > len(both) / 2  # cycles need no fixed clock
    assert from_history(history, "another card") == {}
