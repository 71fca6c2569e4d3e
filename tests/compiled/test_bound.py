"""The bound says what the field knows, and sees work that only run-time values decide."""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from kernels.runtime import backends
from warpwatch import devices
from warpwatch.config import package as configuration
from warpwatch.config import targets
from warpwatch.instruments.compiled.bound import overlap
from warpwatch.instruments.compiled.bound.bound import Bound
from warpwatch.instruments.compiled.formats.code import Instruction, Program
from warpwatch.instruments.compiled.measure import reading
from warpwatch.instruments.compiled.measure.workload import measure, measure_call
from warpwatch.instruments.compiled.record.call import record

_PATH = Path(__file__).with_name("attention_kernel.py")
_SPEC = importlib.util.spec_from_file_location("attention_kernel", _PATH)
assert _SPEC is not None and _SPEC.loader is not None
attention_kernel = importlib.util.module_from_spec(_SPEC)
sys.modules["attention_kernel"] = attention_kernel
_SPEC.loader.exec_module(attention_kernel)


def bound_of(target: str, **shape: Any) -> reading.Reading:
    recording = record(lambda: attention_kernel.forward(**shape), targets.get(target))
    assert recording.failures == ()
    (found,) = reading.read(recording.launches)
    return found


def own(workload: str) -> Mapping[str, Any]:
    """The bound of one launch of our own kernels, from the evidence of a measured workload."""
    found = measure(configuration.workloads().get(workload), targets.get("sm_90"))
    assert (found.status, found.detail) == ("ok", "")
    (launch,) = found.evidence["launches"]
    assert launch["kernel"] == "attention_forward_hopper"
    return launch["bound"]


def test_head_dim_64_on_hopper_ties_special_functions_with_tensor_cores() -> None:
    units = own("attention-bf16-B4-S4096-H32-D64")["units_us"]
    assert units["special"] == pytest.approx(units["tensor"], rel=0.05)
    for other in ("fma", "shared", "memory"):
        assert 2 * units[other] <= min(units["special"], units["tensor"]), other


def test_head_dim_256_is_bound_by_the_tensor_cores() -> None:
    bounded = own("attention-bf16-B4-S4096-H8-D256")
    assert bounded["limited_by"] == "tensor"
    # The exponentials are a quarter of the work and hardly in the way; at 64 they are as much.
    narrow = own("attention-bf16-B4-S4096-H32-D64")["tensor_utilization"]
    assert narrow < 75 and 95 < bounded["tensor_utilization"] < 100
    # 4 S^2 D flops a head at 132 x 4096 flops a clock and 1.83 GHz. Its 1024 tiles are 7.76 for
    # each of the 132 programs, and the last to end has 8.
    flops = 4 * 4096**2 * 256 * 8 * 4
    assert bounded["us"] == pytest.approx(flops / (132 * 4096 * 1.83e3) * 8 * 132 / 1024, rel=0.01)


def test_decode_is_bound_by_memory() -> None:
    queries, keys = "bf16[8,1,32,128]", "bf16[8,16384,32,128]"
    found = measure_call(
        "kernels:flash_attention", targets.get("sm_90"), arguments=f"{queries} {keys} {keys}"
    )
    assert (found.status, found.detail) == ("ok", "")
    heaviest = max(found.evidence["launches"], key=lambda one: one["bound"]["us"])
    assert heaviest["bound"]["limited_by"] == "memory"
    keys_and_values = 2 * 8 * 16384 * 32 * 128 * 2
    assert heaviest["bound"]["us"] == pytest.approx(keys_and_values / 4.8e6, rel=0.01)


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100", "gfx942"])
def test_skipped_blocks_are_seen(target: str) -> None:
    shape: dict[str, Any] = {"rows": 2048, "keys": 2048, "heads": 8, "D": 64}
    shape |= {"M": 64, "N": 64, "warps": 4}
    full, skipping = (bound_of(target, skip=skip, **shape).bound for skip in (False, True))
    # 32 blocks of rows see 1, 2, ... 32 blocks of keys.
    assert skipping.asked_flops / full.asked_flops == pytest.approx(33 / 64, rel=0.02)
    # Some compilers move one iteration out of the loop.
    iterations = [sum(one.iterations) for one in (full, skipping)]
    assert iterations[1] / iterations[0] == pytest.approx(33 / 64, rel=0.04)


def test_products_that_warps_repeat_are_counted() -> None:
    # Eight warps of 16 rows each share 64 rows: the scores, half of the work, are computed twice.
    shared = bound_of("sm_90", rows=2048, keys=2048, heads=8, D=64, M=64, N=64, warps=8).bound
    alone = bound_of("sm_90", rows=2048, keys=2048, heads=8, D=64, M=64, N=64, warps=4).bound
    assert alone.repeated == pytest.approx(1.0)
    assert shared.repeated == pytest.approx(1.5)
    assert shared.units_us["tensor"] / alone.units_us["tensor"] == pytest.approx(shared.repeated)


@triton.jit
def add(x, y, out, n, N: tl.constexpr):
    o = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(out + o, tl.load(x + o, mask=o < n) + tl.load(y + o, mask=o < n), mask=o < n)


@pytest.mark.parametrize("target", ["sm_80", "gfx950"])
def test_an_elementwise_kernel_is_bound_by_its_three_streams(target: str) -> None:
    x = torch.empty(1 << 24, dtype=torch.float16)

    def call() -> None:
        add[(x.numel() // 1024,)](x, torch.empty_like(x), torch.empty_like(x), x.numel(), N=1024)

    (found,) = reading.read(record(call, targets.get(target)).launches)
    assert found.bound.limited_by == "memory"
    bandwidth = {"sm_80": 2039, "gfx950": 8000}[target]
    assert found.bound.us == pytest.approx(3 * 2 * x.numel() / (bandwidth * 1e3), rel=0.01)


def test_arguments_read_many_times_cross_the_memory_bus_once() -> None:
    x = torch.empty(1024, dtype=torch.float32)

    @triton.jit
    def broadcast(x, out, N: tl.constexpr):
        o = tl.arange(0, N)
        tl.store(out + tl.program_id(0) * N + o, tl.load(x + o))

    def call() -> None:
        broadcast[(4096,)](x, torch.empty(4096, 1024), N=1024)

    (found,) = reading.read(record(call, targets.get("sm_90")).launches)
    expected = (4096 + 1) * 4096 / 4.8e6
    assert found.bound.units_us["memory"] == pytest.approx(expected)


def test_so_does_an_expanded_argument() -> None:
    @triton.jit
    def gather(x, out, stride, N: tl.constexpr):
        o, row = tl.arange(0, N), tl.program_id(0)
        tl.store(out + row * N + o, tl.load(x + row * stride + o))

    def call() -> None:
        x = torch.empty(1, 1024).expand(4096, 1024)
        gather[(4096,)](x, torch.empty(4096, 1024), x.stride(0), N=1024)

    (found,) = reading.read(record(call, targets.get("sm_90")).launches)
    assert found.bound.units_us["memory"] == pytest.approx((4096 + 1) * 4096 / 4.8e6)


# What the code itself forbids to overlap ----------------------------------------------------------


def test_softmax_that_waits_for_its_products_is_a_chain() -> None:
    shape: dict[str, Any] = {"rows": 4096, "keys": 4096, "heads": 16, "D": 128, "stages": 3}
    alone = bound_of("sm_90", **shape, M=128, N=128, warps=8)
    units = alone.bound.units_us
    assert alone.occupancy.blocks == 1
    assert alone.bound.limited_by == "tensor"  # a better schedule of the same work could be so fast
    assert alone.bound.active_us == alone.bound.chain_us
    # Products and exponentials one after the other, and no longer than everything in turn.
    assert units["tensor"] + units["special"] <= alone.bound.chain_us
    assert alone.bound.chain_us <= sum(units[one] for one in ("tensor", "special", "fma", "shared"))
    # A second block an SM may fill the gaps.
    shared = bound_of("sm_90", **shape, M=64, N=64, warps=4)
    assert shared.occupancy.blocks > 1
    assert shared.bound.utilization > 1.2 * alone.bound.utilization


def test_pipelined_products_are_hardly_a_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    # The portable kernel: that for Hopper orders its warps by itself, and has no chain at all.
    monkeypatch.setattr(backends, "_given_up", {"matmul.hopper.launch"})
    workload = configuration.workloads().get("matmul-fp16-4096x4096x4096")
    found = measure(workload, targets.get("sm_90"))
    (launch,) = found.evidence["launches"]
    assert launch["kernel"] == "matmul_kernel"
    assert 90 < launch["bound"]["tensor_utilization"] < 100


def test_a_tile_that_takes_more_from_l2_than_a_clock_brings_is_held_up() -> None:
    found = measure(
        configuration.workloads().get("matmul-fp16-1024x1024x1024"), targets.get("sm_90")
    )
    (launch,) = found.evidence["launches"]
    assert launch["kernel"] == "matmul_hopper_once"
    # 64 x 128 x 128: 512 clocks of products, 48 KB at 64 bytes a clock.
    assert math.prod(launch["grid"]) == 128
    assert launch["bound"]["tensor_utilization"] < 100 * 512 / (48 * 1024 / 64)
    assert launch["bound"]["limited_by"] == "tensor"


def test_units_that_are_equally_loaded_get_in_each_others_way() -> None:
    assert overlap.crowded([7.0, 0.0, 0.0]) == pytest.approx(7)
    assert 1.2 < overlap.crowded([1.0, 1.0]) < 1.3
    assert 1 < overlap.crowded([1.0, 0.25]) < 1.01


def test_the_tail_of_a_specialised_kernel_is_what_follows_its_last_product() -> None:
    """Of the warpgroup that has least to do, for the other may multiply first."""

    def tile(name: str, after: int) -> list[Instruction]:
        multiply = Instruction("HGMMA", "", "tensor", labels=(f"{name}-inner",), tensor_level=2)
        again = Instruction("BRA", "", "control", "branch", (f"{name}-inner",))
        done = [Instruction("FADD", "", "fma", work=32) for _ in range(after)]
        back = Instruction("BRA", "", "control", "branch", (name,))
        first = Instruction("FMUL", "", "fma", work=32, labels=(name,))
        return [first, multiply, again, *done, back]

    code = [*tile("one", 500), *tile("two", 300), Instruction("EXIT", "", "control", "end")]
    device = devices.load(targets.get("sm_90").device)
    # Four warps on four schedulers: an instruction a clock.
    assert overlap.tail_clocks(Program(tuple(code)), device) == pytest.approx(301)


def test_what_a_branch_jumps_over_is_known_unless_it_multiplies() -> None:
    def plain(count: int, *labels: str) -> list[Instruction]:
        return [
            Instruction("FADD", "", "fma", labels=labels if i == 0 else ()) for i in range(count)
        ]

    over_end = Instruction("BRA", "", "control", "branch", ("after",))
    over_product = Instruction("BRA", "", "control", "branch", ("last",))
    multiply = Instruction("HGMMA", "", "tensor", tensor_level=2)
    code = [over_end, *plain(3), *plain(1, "after"), over_product, multiply, *plain(1, "last")]
    program = Program(tuple(code))
    assert program.skipped(range(len(code))) == {1, 2, 3}
    # Out of the loop leads no way back into it.
    assert program.skipped(range(4)) == frozenset()


@triton.jit
def products_of_tiles(a, b, out, n, more, D: tl.constexpr, MAY: tl.constexpr):
    o_r = tl.arange(0, 64)
    o_d = tl.arange(0, D)
    for i in range(tl.program_id(0), n, tl.num_programs(0)):
        b_a = tl.load(a + (i * 64 + o_r[:, None]) * D + o_d[None, :])
        b_b = tl.load(b + (i * D + o_d[:, None]) * 64 + o_r[None, :])
        b_x = tl.dot(b_a, b_b)
        if MAY and i < more:
            for j in tl.static_range(4):
                b_x = tl.dot(b_a, tl.load(b + (j * D + o_d[:, None]) * 64 + o_r[None, :]), b_x)
        tl.store(out + (i * 64 + o_r[:, None]) * 64 + o_r[None, :], b_x)


# AMD's compiler doubles the code around a branch of products: the bound sees more of them there.
@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_products_of_a_branch_that_is_not_taken_are_not_counted(target: str) -> None:
    a, b = (torch.empty(1000 * 64 * 128, dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty(1000 * 64 * 64, dtype=torch.float32)

    def bound_where(more: int, *, may: bool) -> Bound:
        def call() -> None:
            products_of_tiles[(200,)](a, b, out, 1000, more, D=128, MAY=may)

        (found,) = reading.read(record(call, targets.get(target)).launches)
        return found.bound

    without, passed, taken = (
        bound_where(0, may=False), bound_where(0, may=True), bound_where(1000, may=True)
    )  # fmt: skip
    tensor = [one.units_us["tensor"] for one in (without, passed, taken)]
    assert tensor[1] == pytest.approx(tensor[0], rel=0.01)
    assert tensor[2] == pytest.approx(5 * tensor[0], rel=0.01)
    assert [one.repeated for one in (without, passed, taken)] == pytest.approx([1, 1, 1])


@pytest.mark.parametrize(
    ("workload", "measured_us"), [("B16-S1024-H16-D128-causal", 460), ("B32-S512-H16-D128", 423)]
)
def test_a_persistent_loop_does_what_begins_and_ends_a_tile_once_a_tile(
    workload: str, measured_us: float
) -> None:
    """An H200 kept the tensor cores active for 64.5 % of the first of these gradients."""
    case = configuration.workloads().get(f"attention-backward-bf16-{workload}")
    found = measure(case, targets.get("sm_90"))
    assert (found.status, found.detail) == ("ok", "")
    assert 75 < found.values["bound_utilization"] <= 100
    assert found.values["bound_us"] < measured_us


def test_an_sm_without_work_is_not_active() -> None:
    few = bound_of("sm_90", rows=128 * 11, keys=4096, heads=6, D=128)  # 66 blocks, 132 SMs
    many = bound_of("sm_90", rows=128 * 11, keys=4096, heads=12, D=128)
    assert few.bound.us == pytest.approx(many.bound.us, rel=0.01)
    assert few.bound.utilization == pytest.approx(many.bound.utilization, rel=0.01)
    assert few.bound.tensor_us == pytest.approx(many.bound.tensor_us / 2)


@triton.jit
def _largest_products(a, b, out, n, D: tl.constexpr, N: tl.constexpr):
    o_m, o_n, o_d = tl.arange(0, 64), tl.arange(0, N), tl.arange(0, D)
    b_a = tl.load(a + o_m[:, None] * D + o_d[None, :])
    b_sum = tl.zeros([64, N], dtype=tl.float32)
    for i in range(n):
        b_sum = tl.dot(b_a, tl.load(b + i * N * D + o_d[:, None] + o_n[None, :] * D), b_sum)
    tl.store(out + o_m, tl.max(b_sum, 1))


def test_a_reduction_behind_the_loop_of_products_is_no_obstacle() -> None:
    a, b = (torch.empty(rows, 64, dtype=torch.float16) for rows in (64, 512))
    out = torch.empty(64)
    recording = record(
        lambda: _largest_products[(1,)](a, b, out, 8, D=64, N=64), targets.get("sm_90")
    )
    assert recording.failures == ()
    (found,) = reading.read(recording.launches)
    assert found.bound.asked_flops == 8 * 2 * 64**3


GRADIENTS = [f"attention_backward_hopper{part}" for part in ("_prepare", "", "_convert")]


@pytest.mark.parametrize(
    ("workload", "kernels"),
    [
        pytest.param(
            "attention-varlen-bf16-mixed-H32-G8-D128-causal",
            ["clear_behind", "list_tiles", "attention_forward_hopper"],
            id="packed",
        ),
        pytest.param(
            "attention-varlen-backward-bf16-mixed-H32-G8-D128-causal",
            ["list_tiles", *GRADIENTS, "attention_backward_few"],
            id="packed-gradients",
        ),
        pytest.param(
            "attention-bf16-B1-S8192-H32-G8-D128-causal-window4096",
            ["attention_forward_hopper"],
            id="window",
        ),
    ],
)
def test_tiles_that_are_listed_or_lie_in_a_window_are_counted(
    workload: str, kernels: list[str]
) -> None:
    """The list is what another kernel stores: its twin in Python says what stands there."""
    case = configuration.workloads().get(workload)
    found = measure(case, targets.get("sm_90"))
    assert (found.status, found.detail) == ("ok", "")
    launches = found.evidence["launches"]
    assert [one["kernel"] for one in launches] == kernels
    launch = max(launches, key=lambda one: one["bound"]["units_us"]["tensor"])
    # 132 x 4096 flops a clock and 1.83 GHz; blocks that are half hidden are multiplied whole.
    needed_us = case.flops / (132 * 4096 * 1.83e3)
    assert needed_us < launch["bound"]["units_us"]["tensor"] < 1.2 * needed_us
