"""The reasons a finding gives run from cause to effect, and only what was measured counts."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from tests.reports import keeping
from warpwatch.judge.evidence.lookup import Evidence
from warpwatch.judge.findings.causes import reasons
from warpwatch.judge.model import advice
from warpwatch.judge.model.core import Change, SeriesKey, Step
from warpwatch.judge.model.directions import Meaning
from warpwatch.judge.results.history import SeriesInfo

GOOD, BAD = "a" * 40, "b" * 40


def changed(
    metric: str, before: float, after: float, workload: str = "attention", target: str = "sm_90"
) -> tuple[Change, SeriesInfo]:
    key = SeriesKey("vm", "python", f"compiled.X.track_{metric}", (workload, target))
    meaning = Meaning("count", "lower", "verdict", True, "compiled", metric)
    change = Change(
        key, "regressed", Step(1, before, after, (1, 1), 1.0), GOOD, BAD, after / (before or 1)
    )
    return change, SeriesInfo(key, meaning, workload, target)


def test_the_cause_comes_before_its_effects() -> None:
    found = reasons(
        [
            changed("bound_us", 286.5, 370.38),
            changed("launches", 1, 4),
            changed("copied_bytes", 0, 201326592),
        ]
    )
    assert found == (
        "extra copy: 0 bytes to 201,326,592 bytes, attention on sm_90",
        "more launches: 1 to 4, attention on sm_90",
        "more work for the busiest unit: 286.5 us to 370.4 us, attention on sm_90",
    )


def test_levels_have_names_and_a_rise_has_other_words_than_a_fall() -> None:
    (lost,) = reasons([changed("tensor_core_level", 2, 1)])
    assert lost == "tensor-core flavour lost: wgmma to mma.sync or MFMA, attention on sm_90"
    (gained,) = reasons([changed("async_copy_level", 1, 2)])
    assert gained.startswith("asynchronous loads gained: cp.async or direct to LDS to TMA")


def test_all_places_of_one_metric_share_a_reason() -> None:
    (one,) = reasons([changed("spilled_bytes", 0, 36, target=t) for t in ("sm_90", "gfx942")])
    assert one == "registers spill: 0 bytes to 36 bytes, attention on gfx942, sm_90"


def test_a_place_with_other_values_is_not_given_those_of_the_strongest() -> None:
    (one,) = reasons(
        [
            changed("blocks_in_flight", 8, 4, target="gfx942"),
            changed("blocks_in_flight", 10, 8),
            changed("blocks_in_flight", 8, 4, "glu", target="gfx942"),
        ]
    )
    assert (
        one == "fewer blocks in flight: 8 to 4, attention, glu on gfx942; also attention on sm_90"
    )


def test_advisories_are_told_in_the_words_of_their_kind(tmp_path: Path) -> None:
    serialised, wrong = "C7510: wgmma.mma_async instructions are serialized", "UR4: nothing wrote"
    kept = {("attention", "sm_90"): ([], [serialised]), ("matmul", "sm_90"): ([wrong], [])}
    for side, commit in enumerate((GOOD, BAD)):
        texts = {place: pair[side] for place, pair in kept.items()}
        keeping.write_compiled(tmp_path, commit, "python", {key: ["MMA"] for key in kept}, texts)
    evidence = Evidence([tmp_path])
    assert reasons([changed("advisories", 0, 1)], evidence) == (
        "wgmma serialised: 0 to 1, attention on sm_90",
    )
    assert reasons([changed("advisories", 1, 0, "matmul")], evidence) == (
        "reads no register nothing wrote: 1 to 0, matmul on sm_90",
    )
    both = [changed("advisories", 0, 1), changed("advisories", 0, 2, "flash")]
    assert reasons(both, evidence) == (
        "wgmma serialised: 0 to 1, attention on sm_90",
        "the compiler advises against its code: 0 to 2, flash on sm_90",
    )


def test_a_failure_gives_its_error_and_host_code_does_not_compile_anyway(tmp_path: Path) -> None:
    places = {(name, target): [] for name in ("norm", "glu") for target in ("sm_90", "gfx942")}
    host, kernel = "TypeError: NoneType (norm.py:93)", "CompilationError: glu.py:7"
    failed = {key: "call failed" if key[0] == "norm" else "compile failed" for key in places}
    errors = {key: host if key[0] == "norm" else kernel for key in places}
    keeping.write_compiled(tmp_path, GOOD, "python", places)
    keeping.write_compiled(tmp_path, BAD, "python", places, statuses=failed, details=errors)
    evidence = Evidence([tmp_path])
    changes = [changed("compile_failures", 0, 1, *place) for place in places]
    assert reasons(changes, evidence) == (
        f"the call fails ({host}): 0 to 1, norm on gfx942, sm_90",
        f"does not compile or fit ({kernel}): 0 to 1, glu on gfx942, sm_90",
    )
    assert reasons(changes) == ("does not compile or fit: 0 to 1, glu, norm on gfx942, sm_90",)
    mended = changed("compile_failures", 1, 0, "norm")
    back = (replace(mended[0], last_good=BAD, first_commit=GOOD), mended[1])
    assert reasons([back], evidence) == (f"the call works again ({host}): 1 to 0, norm on sm_90",)


def test_a_call_that_is_not_even_tried_says_why(tmp_path: Path) -> None:
    error = "ModuleNotFoundError: No module named 'fastops.total' (fastops/flash.py:5)"
    place = ("flash", "sm_90")
    keeping.write_compiled(tmp_path, GOOD, "python", {place: ["MMA"]})
    for status, said in (
        ("import failed", f"the import fails ({error}): flash on sm_90"),
        ("not applicable", f"not there any more ({error}): flash on sm_90"),
        ("not measured", ""),
    ):
        kept = {"statuses": {place: status}, "details": {place: error}}
        keeping.write_compiled(tmp_path, BAD, "python", {place: []}, **kept)
        changes = [
            changed(metric, 0, math.nan, *place) for metric in ("launches", "compile_failures")
        ]
        assert reasons(changes, Evidence([tmp_path])) == ((said,) if said else ())
        began = changed("compile_failures", math.nan, 0, *place)
        assert reasons([began], Evidence([tmp_path])) == ()


def test_advice_on_both_sides_counts_where_no_other_came() -> None:
    old, new = "C7510: serialized", "UR4: nothing wrote"
    assert advice.words([old], [old, new], more=True) == "reads a register nothing wrote"
    assert advice.words([old], [old, old], more=True) == "wgmma serialised"
    assert advice.words([old, new], [], more=False) == (
        "wgmma no longer serialised and reads no register nothing wrote"
    )


def test_a_value_that_ended_and_a_timing_give_no_reason() -> None:
    assert reasons([changed("spilled_bytes", 0, math.nan), changed("latency_us", 1, 2)]) == ()


def test_a_wait_that_the_compiler_injects_is_a_serialised_wgmma_too() -> None:
    injected = "C7517: warpgroup.wait is injected in around line 480 by compiler"
    refused = "C7510: wgmma.mma_async instructions are serialized"
    assert advice.words([], [injected], more=True) == "wgmma serialised"
    assert advice.words([], [injected, refused], more=True) == "wgmma serialised"


def test_products_by_plain_arithmetic_leave_the_matrix_units_idle() -> None:
    said = "triton 3.6.0 multiplies fp16 by plain arithmetic on gfx1250, whose matrix units are 16"
    assert advice.words([], [said], more=True) == "matrix units left idle"
    assert advice.words([said], [], more=False) == "matrix units used again"
