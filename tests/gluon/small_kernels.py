"""Small kernels with host code as anybody writes it, for the simulator's command to run.

``FAULT`` says what is wrong; nothing where it is empty.
"""

from typing import NamedTuple

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

BLOCK = gl.constexpr(64)


@gluon.jit
def _load(a, b, ring_a, ring_b, full, empty, n, STAGES: gl.constexpr, FAULT: gl.constexpr):
    for i in range(n):
        stage, phase = i % STAGES, (i // STAGES) & 1
        if FAULT != "no wait for empty":
            mbarrier.wait(empty.index(stage), phase ^ 1)
        mbarrier.expect(full.index(stage), a.nbytes_per_cta + b.nbytes_per_cta)
        tma.async_copy_global_to_shared(a, [0, i * 64], full.index(stage), ring_a.index(stage))
        tma.async_copy_global_to_shared(b, [i * 64, 0], full.index(stage), ring_b.index(stage))


@gluon.jit
def _multiply(c, ring_a, ring_b, full, empty, n, STAGES: gl.constexpr, FAULT: gl.constexpr):
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    acc = gl.zeros([BLOCK, BLOCK], gl.float32, layout)
    for i in range(n):
        stage, phase = i % STAGES, (i // STAGES) & 1
        if FAULT != "no wait for full":
            mbarrier.wait(full.index(stage), phase)
        acc = warpgroup_mma(ring_a.index(stage), ring_b.index(stage), acc, is_async=True)
        if FAULT == "no wait for the product":
            acc = acc + 1.0
        acc = warpgroup_mma_wait(0, deps=[acc])
        if FAULT != "no hand-back":
            mbarrier.arrive(empty.index(stage))
    out = gl.allocate_shared_memory(c.dtype, c.block_type.shape, c.layout)
    out.store(acc.to(c.dtype))
    if FAULT != "no fence":
        fence_async_shared()
    tma.async_copy_shared_to_global(c, [0, 0], out)
    if FAULT != "no wait for the store":
        tma.store_wait(0)
    if FAULT == "a word":
        gl.no_such_word(acc)
    if FAULT == "an error":
        acc = acc + None


@gluon.jit
def product(a, b, c, n, STAGES: gl.constexpr, FAULT: gl.constexpr):
    """c (64, 64) = a (64, 64 n) @ b (64 n, 64)."""
    ring_a = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_type.shape, a.layout)  # noqa: RUF005  # as people write it
    ring_b = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_type.shape, b.layout)  # noqa: RUF005  # as people write it
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    fence_async_shared()
    gl.warp_specialize(
        [
            (_multiply, (c, ring_a, ring_b, full, empty, n, STAGES, FAULT)),
            (_load, (a, b, ring_a, ring_b, full, empty, n, STAGES, FAULT)),
        ],
        [1],
        [24],
    )


class Row(NamedTuple):
    """Where numbers lie, and how many."""

    pointer: torch.Tensor
    length: int


@gluon.jit
def fill(row, FAULT: gl.constexpr):
    """Fill a ``Row`` with twos."""
    c_pointer, n = row.pointer, row.length
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    at = gl.arange(0, 64, layout) + 64 * gl.program_id(0)
    if FAULT == "behind the end":
        gl.store(c_pointer + at, 0.0)
    if FAULT == "before the end":
        gl.load(c_pointer + at, mask=at < n)
    else:
        gl.store(c_pointer + at, gl.full([64], 2.0, gl.float32, layout), mask=at < n)


def run(fault: str = "", n: int = 4) -> None:
    """Multiply on the GPU and compare with torch."""
    assert torch.cuda.get_device_capability()[0] == 9
    a = torch.randn(64, 64 * n, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(64 * n, 64, device="cuda", dtype=torch.bfloat16)
    c = torch.empty(64, 64, device="cuda", dtype=torch.bfloat16)
    layout = gl.NVMMASharedLayout.get_default_for([64, 64], gl.bfloat16)
    described = [TensorDescriptor.from_tensor(one, [64, 64], layout) for one in (a, b, c)]
    product[(1,)](*described, n, STAGES=2, FAULT=fault, num_warps=4)
    torch.testing.assert_close(c, a @ b, rtol=0.02, atol=0.1)
    twos = torch.empty(100, device="cuda")
    fill[(2,)](Row(twos, 100), FAULT=fault)
    assert (twos == 2.0).all()


def wrong_answer() -> None:
    """Host code that fails by itself."""
    torch.testing.assert_close(torch.zeros(1, device="cuda"), torch.ones(1, device="cuda"))


def nothing() -> None:
    """Host code that launches nothing."""
