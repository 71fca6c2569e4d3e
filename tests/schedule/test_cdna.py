"""AMD instructions on one SIMD: turns, counters in order, and real kernels, none checked."""

from __future__ import annotations

from typing import Any

import pytest

from warpwatch import devices
from warpwatch.config import package as configuration
from warpwatch.config import targets
from warpwatch.instruments.compiled.formats.code import Program
from warpwatch.instruments.compiled.machine_code import amdgcn
from warpwatch.instruments.compiled.measure.workload import Measurement, measure
from warpwatch.instruments.compiled.schedule import cdna, issue, machines
from warpwatch.judge.predicted import verdict

MI300X = devices.load("mi300x")
LOAD = "buffer_load_dwordx4 v[0:3], v9, s[0:3], 0 offen"
PRODUCT = "v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]"


def program(*lines: str) -> Program:
    return amdgcn.read("\n".join(f"\t{line}" for line in lines))


def clocks(*lines: str, warps: int = 1, times: int = 6) -> float:
    code = [cdna.step(one, MI300X) for one in program(*lines).instructions]
    return issue.clocks([issue.Warp(code, times, 0, 4) for _ in range(warps)])[0]


def test_a_wave_issues_once_in_a_turn() -> None:
    plain = ["v_add_f32_e32 v0, v1, v2"] * 10
    assert clocks(*plain) == 10 * cdna.TURN
    # Two waves share the vector unit; another wave's scalar instructions go to another.
    assert clocks(*plain, warps=2) == 2 * 10 * cdna.TURN
    assert clocks(*["s_add_u32 s0, s1, s2"] * 10) == 10 * cdna.TURN


def test_transcendental_functions_take_four_turns() -> None:
    assert clocks(*["v_exp_f32_e32 v0, v1"] * 10) == 4 * 10 * cdna.TURN


def test_a_product_takes_the_clocks_of_its_rate() -> None:
    flops, rate = 2 * 32 * 32 * 8, MI300X.flop_per_clock["fp16"] / 4
    assert clocks(*[PRODUCT] * 4) == pytest.approx(4 * flops / rate)
    # Other work fits into the time of a product.
    assert clocks(PRODUCT, *["v_add_f32_e32 v0, v1, v2"] * 5) == pytest.approx(flops / rate)
    assert clocks("s_nop 7") == 8 * cdna.TURN


def test_a_wait_is_for_all_but_the_newest() -> None:
    every = clocks(LOAD, LOAD, "s_waitcnt vmcnt(0)", times=1)
    first = clocks(LOAD, LOAD, "s_waitcnt vmcnt(1)", "v_nop", times=1)
    assert every > cdna.FROM_L2
    assert clocks(LOAD, "s_waitcnt vmcnt(0)", times=14) > cdna.FROM_L2
    # The loads of the iteration before are waited for.
    pipelined = clocks(LOAD, "s_waitcnt vmcnt(1)", times=14)
    assert pipelined == pytest.approx(clocks(LOAD, "s_waitcnt vmcnt(0)", times=14) / 2, rel=0.1)
    assert first <= every
    # Shared memory has a counter of its own.
    assert clocks(LOAD, "s_waitcnt lgkmcnt(0)", times=14) < cdna.FROM_L2


def test_shared_memory_hands_out_its_bytes() -> None:
    read = "ds_read_b128 v[0:3], v4"
    share = 64 * 16 * 4 / MI300X.shared_bytes_per_clock
    assert clocks(*[read] * 8, times=6) == pytest.approx(8 * share, rel=0.1)


def measured(target: str, workload: str = "matmul-fp16-4096x4096x4096") -> Measurement:
    return measure(configuration.workloads().get(workload), targets.get(target))


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_a_real_kernel_is_predicted_and_not_checked(target: str) -> None:
    found = measured(target)
    assert found.status == "ok", found.detail
    evidence: Any = found.evidence
    (predicted,) = evidence["predicted"]
    (launch,) = evidence["launches"]
    assert not predicted["checked"] and target not in machines.CHECKED
    # A prediction is never shorter than what the busiest unit needs.
    assert launch["bound"]["us"] < predicted["us"] < 4 * launch["bound"]["us"]
    slower = evidence | {"predicted": [predicted | {"us": 3 * predicted["us"]}]}
    time = verdict.between(evidence, slower)
    assert time is not None and time.verdict == "inconclusive"
