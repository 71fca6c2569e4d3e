"""Targets that users name: compiled, read without a gap, and never quietly by plain arithmetic."""

from __future__ import annotations

import os

import pytest
import torch
import triton
import triton.language as tl

from tests.meetings import EVERY_PAIR
from warpwatch import devices
from warpwatch.commands.compiled import inspect
from warpwatch.config import package as configuration
from warpwatch.config import targets
from warpwatch.instruments.compiled.diff import cliffs, sides
from warpwatch.instruments.compiled.machine_code import amdgcn
from warpwatch.instruments.compiled.measure import jobs, reading
from warpwatch.instruments.compiled.measure.workload import measure_call
from warpwatch.instruments.compiled.record.call import record

NAMED = [one.name for one in targets.KNOWN if not one.by_default]
WORKLOAD = "matmul-fp16-1024x1024x1024"
ATTENTION = "attention-bf16-B1-S8192-H32-G8-D128-causal"


@triton.jit
def product(a, b, c, K, M: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr):
    rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, STEP)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, K, STEP):
        at = start + inner
        x = tl.load(a + rows[:, None] * K + at[None, :])
        y = tl.load(b + at[:, None] * N + columns[None, :])
        total = tl.dot(x, y, total)
    tl.store(c + rows[:, None] * N + columns[None, :], tl.exp(total))


def multiply(rows: int = 64, dtype: torch.dtype = torch.float16) -> None:
    a = torch.empty(rows, 256, dtype=dtype, device="cuda")
    b = torch.empty(256, 64, dtype=dtype, device="cuda")
    product[(1,)](a, b, torch.empty(rows, 64, device="cuda"), 256, rows, 64, 32)


def read(target: str, rows: int = 64, dtype: torch.dtype = torch.float16) -> reading.Reading:
    recording = record(lambda: multiply(rows, dtype), targets.get(target))
    assert recording.failures == ()
    (found,) = reading.read(recording.launches)
    return found


def test_they_are_not_compiled_for_by_default() -> None:
    assert NAMED == ["sm_103", "sm_120", "gfx1201", "gfx1250"]
    assert [one.name for one in targets.TARGETS] == [
        one.name for one in targets.KNOWN if one.name not in NAMED
    ]


@pytest.mark.parametrize("target", NAMED)
def test_a_product_is_read_without_a_gap(target: str) -> None:
    found = read(target)
    device = devices.load(targets.get(target).device)
    assert found.code.program.unknown == ()
    assert found.code.tensor_level == (3 if target == "sm_103" else 1)
    assert found.advisories == ()
    assert found.bound.asked_flops == 2 * 64 * 64 * 256
    # One program on one multiprocessor. Of eight turns LLVM takes one out of the loop.
    done = found.bound.asked_flops * found.bound.repeated
    busy_us = done / (device.flop_per_clock["fp16"] * device.clock_ghz * 1e3)
    assert found.bound.units_us["tensor"] == pytest.approx(busy_us, rel=0.01)
    assert found.bound.repeated == (1.125 if target.startswith("gfx12") else 1.0)
    assert found.occupancy.blocks >= 1
    unknown = [note for note in found.bound.notes if "is not public" in note]
    assert unknown == [
        f"{key} of {device.title} is not public: what it limits is not in the bound"
        for key in device.unknown
        if key == "special_per_clock"
    ]


@pytest.mark.parametrize("target", ["gfx942", "gfx1201", "gfx1250"])
def test_a_product_without_matrix_instructions_is_an_alarm(target: str) -> None:
    found = read(target, rows=4)
    assert found.code.tensor_level == 0
    (said,) = found.advisories
    assert said.startswith(f"triton {triton.__version__} multiplies fp16 by plain arithmetic on ")
    assert said.endswith(
        "times as fast: give tl.dot blocks of 16 or more on each side, in a dtype that the units "
        "take"
    )
    assert found.evidence()["advisories"] == [said]
    assert read(target, rows=16).advisories == ()


def test_products_that_no_matrix_unit_does_are_none() -> None:
    """RDNA 4 has no matrix instruction of fp32: plain arithmetic is all there is."""
    found = read("gfx1201", dtype=torch.float32)
    assert found.code.tensor_level == 0
    assert found.multiplies
    assert found.advisories == ()


def test_inspect_and_lint_fail_for_it() -> None:
    call = f"{__name__}:multiply"
    plain, good = (
        jobs.Result(
            jobs.Job(call, "gfx1201"), one.status, one.detail, dict(one.values), dict(one.evidence)
        )
        for one in (
            measure_call(call, targets.get("gfx1201"), arguments=f"rows={rows}") for rows in (4, 64)
        )
    )
    assert [inspect.exit_code([one]) for one in (plain, good)] == [3, 0]
    assert [one.values["advisories"] for one in (plain, good)] == [1, 0]
    found, unknown = cliffs.fallen("gfx1201", {"a": good}, {"a": plain})
    assert unknown == []
    assert any("by plain arithmetic" in reason for reason in found[0].reasons)
    assert cliffs.fallen("gfx1201", {"a": plain}, {"a": plain}) == ([], [])


def test_a_triton_that_does_not_know_a_target_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton, "__version__", "3.5.1")
    found = measure_call(f"{__name__}:multiply", targets.get("sm_103"))
    assert (found.status, found.detail) == (
        "not measured",
        "triton 3.5.1 does not know sm_103: expected 3.6 or later",
    )


@pytest.mark.parametrize(
    ("line", "kind", "work"),
    [
        ("v_wmma_f32_16x16x32_f16 v[0:7], v[8:15], v[16:23], v[0:7]", "tensor", 16384),
        ("v_swmmac_f32_16x16x32_f16 v[0:7], v[8:11], v[12:19], v20", "tensor", 8192),
        ("v_dual_mov_b32 v6, 0 :: v_dual_fmac_f32 v65, v1, v2", "fma", 64),
        ("v_dual_mov_b32 v6, 0 :: v_dual_and_b32 v65, 31, v0", "move", 0),
        ("v_dual_mov_b32 v6, 0 :: v_dual_frobnicate_b32 v65, 31, v0", "unknown", 0),
        ("v_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[0:1]", "fma", 64),
        ("v_exp_f32_e32 v1, v2", "special", 32),
        ("ds_load_2addr_stride64_b64 v[0:3], v4 offset1:1", "shared", 512),
        ("ds_load_tr16_b128 v[0:3], v4", "shared", 512),
        ("s_wait_loadcnt_dscnt 0x0", "barrier", 0),
        ("s_wait_tensorcnt 0x0", "barrier", 0),
        ("tensor_load_to_lds s[0:3], s[4:11]", "global", 0),
        ("global_load_async_to_lds_b128 v1, v[2:3], off", "global", 512),
        ("s_fmac_f32 s0, s1, s2", "scalar", 0),
    ],
)
def test_instructions_of_waves_of_32_lanes(line: str, kind: str, work: int) -> None:
    (found,) = amdgcn.read(f"\t{line}\n    .wavefront_size: 32\n").instructions
    assert (found.kind, found.work) == (kind, work)


@pytest.mark.parametrize(
    ("opcode", "level"),
    [("tensor_load_to_lds", 2), ("global_load_async_to_lds_b128", 1), ("global_load_b128", 0)],
)
def test_how_tiles_come_to_shared_memory(opcode: str, level: int) -> None:
    assert reading.async_copy_level(amdgcn.read(f"\t{opcode} v[0:3], v[4:5], off\n")) == level


@pytest.mark.slow
@pytest.mark.parametrize("target", NAMED)
def test_our_own_kernels_are_read_without_a_gap(target: str) -> None:
    """The fixed set every night, else what shows most instructions."""
    every = dict.fromkeys(workload.name for workload, _ in configuration.workloads().fixed_set())
    names = list(every) if EVERY_PAIR else [WORKLOAD, ATTENTION]
    with sides.opened(".") as side:
        asked = [jobs.Job(name, target, is_workload=True) for name in names]
        done = list(jobs.run(asked, side.environment))
    assert {one.status for one in done} == {"ok"}
    launches = [launch for one in done for launch in one.evidence.get("launches", [])]
    assert {name for launch in launches for name in launch["unknown_instructions"]} == set()
    assert [launch["advisories"] for launch in launches if launch["advisories"]] == []


@pytest.mark.slow
@pytest.mark.tritons
def test_triton_3_6_leaves_the_matrix_units_of_gfx1250_idle() -> None:
    if "tritons" not in os.environ.get("WARPWATCH_MUST_RUN", ""):
        pytest.skip("another Triton is fetched: make test-tritons")
    with sides.opened("3.6.0") as side:
        (found,) = jobs.run([jobs.Job(WORKLOAD, "gfx1250", is_workload=True)], side.environment)
    assert found.values["tensor_core_level"] == 0
    assert [one["advisories"] for one in found.evidence["launches"]] == [
        [
            "triton 3.6.0 multiplies fp16 by plain arithmetic on gfx1250, whose matrix units are "
            "16 times as fast: compile with triton 3.7 or later"
        ]
    ]
