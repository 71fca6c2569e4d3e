"""The verdict from a predicted time: what decides, what only explains, and what is said of it."""

from __future__ import annotations

from typing import Any

import pytest

from warpwatch.instruments.compiled.diff import comparison
from warpwatch.instruments.compiled.measure import jobs
from warpwatch.judge.predicted import call, verdict
from warpwatch.judge.predicted.verdict import between, weigh


def launch(us: float, kernel: str = "k", **given: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    parts = given.pop("parts", {"latency": 1000 * us})
    clocks = sum(parts.values())
    predicted = {
        "clocks": clocks,
        "us": (clocks + given.get("idle", 0)) / 1000,
        "limited_by": "latency",
        "sure": True,
        "parts": parts,
        "idle": 0,
        **given,
    }
    shape = {"grid": [1, 1, 1], "num_warps": 4, "hot_loops": [{}], "code": str(us)}
    recorded = {
        **shape,
        "kernel": kernel,
        "advisories": [],
        "constants": {},
        "occupancy": {"blocks": 2, "limited_by": "registers"},
        "bound": {"limited_by": "tensor"},
        "instructions": {},
    }
    return recorded, predicted


def evidence(*launches: tuple[dict[str, Any], dict[str, Any]], **given: Any) -> dict[str, Any]:
    recorded, predicted = zip(*launches, strict=True) if launches else ((), ())
    return {"launches": list(recorded), "predicted": list(predicted), **given}


def said(old: dict[str, Any], new: dict[str, Any]) -> str:
    return str(between(old, new))


def test_says_what_moved_where_by_how_much_how_sure_and_why() -> None:
    old = evidence(launch(100.0), launch(20.0, "other"))
    new = evidence(launch(150.0), launch(20.0, "other"))
    text = said(old, new)
    assert text.startswith("the call is predicted to take 120.0 -> 170.0 us, ")
    assert text.endswith(" % longer with 90 % confidence, mostly latency of k")
    assert "shorter" in said(new, old)
    near = said(old, evidence(launch(100.5), launch(20.0, "other")))
    assert near.startswith("the call is predicted to take 120.0 -> 120.5 us, -")
    assert "longer" not in near


@pytest.mark.parametrize(
    ("new", "part", "kernel"),
    [
        (evidence(launch(100.0), launch(90.0, "copy")), "launches", "copy"),
        (evidence(launch(100.0), torch_us=80.0), "copies", ""),
        (evidence(launch(100.0, idle=80_000)), "idle", "k"),
        (evidence(launch(180.0, parts={"latency": 100_000, "tensor": 80_000})), "tensor", "k"),
    ],
)
def test_the_part_that_moved_most_is_named(new: dict[str, Any], part: str, kernel: str) -> None:
    found = between(evidence(launch(100.0)), new)
    assert found is not None
    assert (found.part, found.kernel, found.verdict) == (part, kernel, "regressed")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (evidence(launch(100.0)), evidence(launch(150.0, sure=False))),
        (evidence(), evidence(launch(150.0))),
        (evidence(launch(100.0)), evidence(launch(150.0, clocks=-1))),
        (evidence(launch(100.0)), evidence(launch(150.0, clocks=5, idle=-5))),
        (evidence(launch(100.0)), evidence(launch(150.0, parts={"latency": -1}))),
        (evidence(launch(100.0)), evidence(launch(150.0, parts={"latency": 1e308, "fma": 1e308}))),
        (evidence(launch(100.0)), evidence(launch(150.0), torch_us=-1.0)),
        # How long torch's operations take is not known of older evidence.
        (evidence(launch(100.0), torch_ops=[{}]), evidence(launch(150.0))),
    ],
)
def test_says_nothing_where_a_time_is_not_known(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert between(old, new) is None


def test_the_same_launches_take_as_long() -> None:
    found = between(evidence(launch(100.0)), evidence(launch(100.0)))
    assert found is not None and found.verdict == "unchanged" and found.low == found.high == 1


def test_what_no_card_checked_gives_no_verdict() -> None:
    old, new = (evidence(launch(us, checked=False)) for us in (100.0, 200.0))
    found = between(old, new)
    assert found is not None and found.verdict == "inconclusive"
    assert "not checked against a machine" in str(found)
    assert weigh(found, {"bound_us": 1}, {}) == "regressed"
    assert weigh(found, {"bound_us": 1}, {"launches": 2}) == "mixed"


def time(us: float) -> verdict.Change | None:
    return between(evidence(launch(100.0)), evidence(launch(us)))


@pytest.mark.parametrize(
    ("us", "worse", "better", "word"),
    [
        (150.0, {}, {}, "regressed"),
        (150.0, {}, {"spilled_bytes": 8}, "regressed"),
        (50.0, {"spilled_bytes": 0}, {}, "improved"),
        (50.0, {"compile_failures": 0}, {}, "regressed"),
        (100.5, {}, {}, "unchanged"),
        (100.5, {"bound_us": 1}, {}, "inconclusive"),
        (100.5, {"bound_us": 1}, {"blocks_in_flight": 2}, "inconclusive"),
        (100.5, {"launches": 1}, {}, "inconclusive"),
        (100.5, {"spilled_bytes": 8}, {}, "inconclusive"),
        (100.5, {"bound_us": 1}, {"tensor_core_level": 1}, "mixed"),
        (100.5, {"spilled_bytes": 0}, {"bound_us": 1}, "regressed"),
        (100.5, {"async_copy_level": 2}, {}, "regressed"),
        (100.5, {"spilled_bytes": 0}, {"async_copy_level": 1}, "mixed"),
        (100.5, {}, {"launches": 2}, "unchanged"),
        (100.5, {}, {"spilled_bytes": 8}, "unchanged"),
    ],
)
def test_weighs_metrics_by_the_time(
    us: float, worse: dict[str, float], better: dict[str, float], word: str
) -> None:
    assert weigh(time(us), worse, better) == word


def result(us: float, **values: float) -> jobs.Result:
    return jobs.Result(jobs.Job("f", "sm_90"), "ok", "", values, evidence(launch(us)))


@pytest.mark.parametrize(
    ("old", "new", "word", "code"),
    [
        (result(100.0), result(150.0), "regressed", 1),
        (result(100.0, bound_us=1.0), result(50.0, bound_us=2.0), "improved", 0),
        (result(100.0, bound_us=1.0), result(100.5, bound_us=2.0), "inconclusive", 3),
        (
            result(100.0, spilled_bytes=0, async_copy_level=1),
            result(100.5, spilled_bytes=8, async_copy_level=2),
            "mixed",
            3,
        ),
        (result(100.0), result(100.5), "other code", 0),
    ],
)
def test_a_comparison_takes_the_verdict(
    old: jobs.Result, new: jobs.Result, word: str, code: int
) -> None:
    compared = comparison.compare([old], [new])
    assert compared[0].word == word and comparison.exit_code(compared) == code
    assert compared[0].causes[0].startswith("the call is predicted to take ")


def test_metrics_are_evidence_beneath_a_verdict() -> None:
    (found,) = comparison.compare([result(100.0, bound_us=1.0)], [result(150.0, bound_us=2.0)])
    assert [one.metric for one in found.verdicts] == ["predicted_us"]
    assert "bound_us" in [one.metric for one in found.evidence]
    assert found.worst is not None and found.worst.metric == "predicted_us"


def test_parts_of_a_call_add_up_to_its_time() -> None:
    found = call.of(evidence(launch(100.0, idle=50_000), launch(20.0, "other"), torch_us=7.0))
    assert found is not None and found.us == pytest.approx(100 + 50 + 20 + 7)
