"""Shared memory seen as elements of another size: the same bytes, and the same races."""

from __future__ import annotations

import re

import pytest
import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from kernels.device.hopper_rings import barriers
from tests.gluon.interpreter import hopper_on_the_cpu
from tests.kernels.interpreted import Worker

FLAT = gl.constexpr(gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))
HALVES = gl.constexpr(gl.SwizzledSharedLayout(1, 1, 1, [2, 1, 0]))
TILE = gl.constexpr(gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0]))
BY_ONE_WARP = gl.constexpr(gl.BlockedLayout([1, 1], [1, 32], [1, 1], [1, 0]))


@gluon.jit
def _reads(out, tile, full, FAULT: gl.constexpr):
    if FAULT != "no wait":
        mbarrier.wait(full.index(0), 0)
    o_m = gl.arange(0, 16, gl.SliceLayout(1, TILE))[:, None]
    o_n = gl.arange(0, 16, gl.SliceLayout(0, TILE))[None, :]
    gl.store(out + o_m * 16 + o_n, tile.load(TILE))


@gluon.jit
def _writes(tile, full, FAULT: gl.constexpr):
    if FAULT == "no run":
        tile.slice(0, 8, 1)._reinterpret(gl.float16, [2, 8, 16], HALVES)
    if FAULT == "other size":
        tile._reinterpret(gl.float16, [16, 16], FLAT)
    halves = tile._reinterpret(gl.float16, [2, 16, 16], HALVES)
    halves.index(0).store(gl.full([16, 16], 1.5, gl.float16, BY_ONE_WARP))
    halves.index(1).store(gl.full([16, 16], 2.5, gl.float16, BY_ONE_WARP))
    mbarrier.arrive(full.index(0))


@gluon.jit
def in_halves(out, FAULT: gl.constexpr):
    """out, int32 (16, 16): pairs of 1.5 in its upper half, of 2.5 in its lower."""
    tile = gl.allocate_shared_memory(gl.int32, [16, 16], FLAT)
    full = barriers(1, 1)
    gl.warp_specialize(
        [(_reads, (out, tile, full, FAULT)), (_writes, (tile, full, FAULT))], [1], [24]
    )


def run(fault: str) -> str | list[float]:
    out = torch.zeros((16, 16), dtype=torch.int32)
    with hopper_on_the_cpu():
        try:
            in_halves[(1,)](out, FAULT=fault)
        except AssertionError as error:
            return f"{type(error).__name__}: {error}"
    return out.view(torch.float16).flatten().tolist()


def test_halves_of_a_tile_lie_one_after_the_other(worker: Worker) -> None:
    assert worker.run(run, "") == [1.5] * 256 + [2.5] * 256


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("no wait", "shared memory 0 .*, which nobody wrote|not knowing that"),
        ("no run", "only a run of an allocation"),
        ("other size", "a view of int32 of .16, 16. as fp16 of .16, 16."),
    ],
)
def test_what_is_wrong_with_a_view_is_said(worker: Worker, fault: str, said: str) -> None:
    found = worker.run(run, fault)
    assert isinstance(found, str)
    assert re.search(said, found), found


@gluon.jit
def over_a_factor(out, FAULT: gl.constexpr):
    """out, fp32 (64, 64): a product of ones, after which another type is written over a factor."""
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    SHARED: gl.constexpr = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16)
    a = gl.allocate_shared_memory(gl.float16, [64, 64], SHARED)
    a.store(gl.full([64, 64], 1.0, gl.float16, LAYOUT))
    fence_async_shared()
    none = gl.zeros([64, 64], gl.float32, LAYOUT)
    product = warpgroup_mma(a, a, none, use_acc=False, is_async=True)
    if FAULT == "":
        product = warpgroup_mma_wait(0, deps=[product])
    a._reinterpret(gl.int32, [64, 32], FLAT).store(gl.full([64, 32], 0, gl.int32, TILE))
    if FAULT != "":
        product = warpgroup_mma_wait(0, deps=[product])
    o_m = gl.arange(0, 64, gl.SliceLayout(1, LAYOUT))[:, None]
    o_n = gl.arange(0, 64, gl.SliceLayout(0, LAYOUT))[None, :]
    gl.store(out + o_m * 64 + o_n, product)


def run_product(fault: str) -> str | float:
    out = torch.zeros((64, 64))
    with hopper_on_the_cpu():
        try:
            over_a_factor[(1,)](out, FAULT=fault)
        except AssertionError as error:
            return f"{type(error).__name__}: {error}"
    return float(out.mean())


def test_a_product_is_not_to_read_what_a_view_has_overwritten(worker: Worker) -> None:
    assert worker.run(run_product, "") == 64.0
    assert "multiplies it" in str(worker.run(run_product, "no wait for the product"))
