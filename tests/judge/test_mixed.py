"""Better and worse of one kernel at once: weighed by its predicted time, else mixed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from warpwatch.judge.model import thresholds
from warpwatch.judge.model.core import Better
from warpwatch.judge.pairs.gate import judge_exact
from warpwatch.judge.pairs.run_verdict import Judged, of_time, settle
from warpwatch.judge.predicted.interval import of_ratio
from warpwatch.judge.predicted.verdict import Change

LIMITS = thresholds.load()


def exact(metric: str, base: float, head: float, better: Better = "lower") -> Judged:
    judgement = judge_exact(base, head, better, LIMITS.of(metric))
    return Judged(metric, "w @ sm_90", "", base, head, judgement, True, "compiled")


SPILLS = exact("spilled_bytes", 3520.0, 0.0)
BOUND = exact("bound_us", 100.0, 101.5)
PIPELINE = exact("async_copy_level", 1.0, 0.0, "higher")


def verdicts(*judged: Judged) -> tuple[list[str], int]:
    settled = settle(judged, 0.05)
    return [one.judgement.verdict for one in settled.judged], settled.exit_code


def test_what_nobody_can_weigh_is_mixed() -> None:
    assert verdicts(SPILLS, BOUND) == (["improved", "mixed"], 3)
    found = settle([SPILLS, BOUND], 0.05).judged[1].judgement
    assert found.reason == "spilled_bytes got better: which weighs more is not known"
    # A lost pipeline is no improvement because something else got better.
    assert verdicts(exact("blocks_in_flight", 1.0, 2.0, "higher"), PIPELINE)[1] == 3


def predicted(us: float) -> Judged:
    return of_time("w @ sm_90", Change(100.0, us, *of_ratio(us / 100), "latency", "k", True))


@pytest.mark.parametrize(
    ("us", "found"),
    [
        (50.0, (["improved", "improved", "improved"], 0)),
        (100.0, (["improved", "mixed", "inconclusive"], 3)),
        (120.0, (["improved", "regressed", "regressed"], 1)),
    ],
)
def test_a_predicted_time_decides(us: float, found: tuple[list[str], int]) -> None:
    said = verdicts(SPILLS, BOUND, predicted(us))
    assert said[1] == found[1] and said[0][2] == found[0][2]
    settled = settle([SPILLS, BOUND, predicted(us)], 0.05).judged
    if us != 100.0:  # the others explain it
        assert [one.evidence for one in settled] == [True, True, False]
    else:
        assert said[0] == found[0] and settled[0].evidence and settled[2].evidence


def test_what_the_prediction_is_made_from_is_no_alarm_by_itself() -> None:
    assert verdicts(BOUND, predicted(101.0)) == (["inconclusive", "inconclusive"], 3)
    more = exact("launches", 1.0, 2.0)
    assert verdicts(more, predicted(101.0)) == (["inconclusive", "inconclusive"], 3)
    more = exact("spilled_bytes", 8.0, 12.0)
    assert verdicts(more, predicted(101.0)) == (["inconclusive", "inconclusive"], 3)
    better = exact("bound_us", 100.0, 98.0)
    assert settle([better, predicted(99.0)], 0.05).judged[0].evidence


def test_a_lost_form_of_code_stays_an_alarm_where_the_time_is_not_sure() -> None:
    spills = exact("spilled_bytes", 0.0, 64.0)
    assert verdicts(spills, predicted(101.0)) == (["regressed", "inconclusive"], 1)
    assert verdicts(spills, PIPELINE, predicted(101.0))[1] == 1
    gained = exact("tensor_core_level", 1.0, 2.0, "higher")
    assert verdicts(spills, gained, predicted(101.0)) == (["mixed", "improved", "inconclusive"], 3)


def test_a_failure_is_no_price_of_a_shorter_time() -> None:
    assert verdicts(exact("compile_failures", 0.0, 1.0), predicted(50.0))[1] == 1


def test_only_one_direction_is_what_it_is() -> None:
    assert verdicts(BOUND) == (["regressed"], 1)
    assert verdicts(SPILLS) == (["improved"], 0)
    assert verdicts(BOUND, PIPELINE) == (["regressed", "regressed"], 1)


def test_no_shorter_time_pays_for_a_failure_or_for_memory() -> None:
    for metric in ("compile_failures", "peak_bytes"):
        assert verdicts(SPILLS, exact(metric, 1.0, 2.0)) == (["improved", "regressed"], 1)


def test_another_kernel_weighs_nothing() -> None:
    other = Judged("bound_us", "v @ sm_90", "", 100.0, 101.5, BOUND.judgement, True, "compiled")
    assert verdicts(SPILLS, other) == (["improved", "regressed"], 1)


def measured(head: float, p_value: float = 0.0, *, explains: bool = False) -> Judged:
    judgement = replace(
        judge_exact(100.0, head, "lower", LIMITS.of("latency_cold")), test="pairs", p_value=p_value
    )
    return Judged(
        "latency_cold", "w", "us", 100.0, head, judgement, False, "latency", evidence=explains
    )


def test_a_shorter_time_on_the_card_outweighs_what_was_compiled_for_it() -> None:
    settled = settle([BOUND, measured(72.0)], 0.05, "sm_90")
    assert [one.judgement.verdict for one in settled.judged] == ["unchanged", "improved"]
    assert settled.judged[0].judgement.reason == "outweighed: latency_cold got better on the card"
    assert settled.exit_code == 0


@pytest.mark.parametrize(
    ("judged", "card"),
    [
        (measured(72.0), "sm_80"),  # it was compiled for another card
        (measured(72.0), None),
        (measured(100.0), "sm_90"),  # no slower yet is no reason to let code grow
        (measured(72.0, 0.9), "sm_90"),  # not sure among so many series
        (measured(72.0, explains=True), "sm_90"),  # of a short call cycles decide
    ],
)
def test_nothing_else_that_was_measured_does(judged: Judged, card: str | None) -> None:
    settled = settle([BOUND, judged], 0.05, card)
    assert settled.judged[0].judgement.verdict == "regressed" and settled.exit_code == 1
