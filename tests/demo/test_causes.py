"""The reasons a finding gives run from cause to effect, and only what was measured counts."""

from __future__ import annotations

import math

from reports.causes import reasons
from reports.directions import Meaning
from reports.history import SeriesInfo
from reports.model import Change, SeriesKey, Step


def changed(
    metric: str, before: float, after: float, workload: str = "attention", target: str = "sm_90"
) -> tuple[Change, SeriesInfo]:
    key = SeriesKey("vm", "python", f"compiled.X.track_{metric}", (workload, target))
    meaning = Meaning("count", "lower", "verdict", True, "compiled", metric)
    change = Change(
        key, "regressed", Step(1, before, after, (1, 1), 1.0), "a", "b", after / (before or 1)
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


def test_a_value_that_ended_and_a_timing_give_no_reason() -> None:
    assert reasons([changed("spilled_bytes", 0, math.nan), changed("latency_us", 1, 2)]) == ()
