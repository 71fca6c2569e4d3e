"""Races and hangs that people reported of warp-specialised kernels, as small kernels of our own.

Each host function runs a kernel as it should be, or with the fault that was reported.
"""

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import blackwell
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor


def described(x: torch.Tensor) -> TensorDescriptor:
    layout = gl.NVMMASharedLayout.get_default_for([64, 64], gl.bfloat16)
    return TensorDescriptor.from_tensor(x, [64, 64], layout)


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


@gluon.jit
def _barriers(COUNT: gl.constexpr, ARRIVALS: gl.constexpr):
    made = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(COUNT):
        mbarrier.init(made.index(i), count=ARRIVALS)
    return made


@gluon.jit
def _produce(a, b, ring_a, ring_b, full, empty, n, CASE: gl.constexpr):
    for i in range(n):
        stage, phase = i % 2, (i // 2) & 1
        mbarrier.wait(empty.index(stage), phase ^ 1)
        mbarrier.expect(full.index(stage), a.nbytes_per_cta + b.nbytes_per_cta)
        tma.async_copy_global_to_shared(a, [0, i * 64], full.index(stage), ring_a.index(stage))
        b_stage = 0 if CASE == "one operand has one stage" else stage
        tma.async_copy_global_to_shared(b, [i * 64, 0], full.index(stage), ring_b.index(b_stage))


@gluon.jit
def _nothing(a, b, ring_a, ring_b, full, empty, n, CASE: gl.constexpr):
    gl.static_assert(CASE == "the producer has no work")


@gluon.jit
def _consume(c, out, ring_a, ring_b, full, empty, n, row, CASE: gl.constexpr):
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    acc = gl.zeros([64, 64], gl.float32, layout)
    for i in range(n):
        stage, phase = i % 2, (i // 2) & 1
        mbarrier.wait(full.index(stage), phase)
        b_stage = 0 if CASE == "one operand has one stage" else stage
        acc = warpgroup_mma(ring_a.index(stage), ring_b.index(b_stage), acc, is_async=True)
        if CASE == "released before the product is done":
            mbarrier.arrive(empty.index(stage))
        if CASE == "the accumulator is read early":
            acc *= 2.0
        acc = warpgroup_mma_wait(0, deps=[acc])
        if CASE == "one side skips a block":
            if i != 1:
                mbarrier.arrive(empty.index(stage))
        elif CASE != "released before the product is done":
            mbarrier.arrive(empty.index(stage))
    out.store(acc.to(gl.bfloat16))
    if CASE != "no fence before the copy out":
        fence_async_shared()
    tma.async_copy_shared_to_global(c, [row, 0], out)
    tma.store_wait(0)


@gluon.jit
def ring(a, b, c, n, CASE: gl.constexpr, READERS: gl.constexpr):
    """Every reader multiplies a (64, 64 n) by b (64 n, 64), and writes 64 rows of c."""
    ring_a = gl.allocate_shared_memory(gl.bfloat16, [2, 64, 64], a.layout)
    ring_b = gl.allocate_shared_memory(gl.bfloat16, [2, 64, 64], b.layout)
    out = gl.allocate_shared_memory(gl.bfloat16, [2, 64, 64], c.layout)
    full = _barriers(2, 1)
    if CASE == "the stage is handed back by one of two readers":
        empty = _barriers(2, 1)
    else:
        empty = _barriers(2, READERS)
    if CASE != "no fence behind the barriers":
        fence_async_shared()
    produce: gl.constexpr = _nothing if CASE == "the producer has no work" else _produce
    if READERS == 1:
        gl.warp_specialize(
            [
                (_consume, (c, out.index(0), ring_a, ring_b, full, empty, n, 0, CASE)),
                (produce, (a, b, ring_a, ring_b, full, empty, n, CASE)),
            ],
            [1],
            [24],
        )
    else:
        gl.warp_specialize(
            [
                (_consume, (c, out.index(0), ring_a, ring_b, full, empty, n, 0, CASE)),
                (_consume, (c, out.index(1), ring_a, ring_b, full, empty, n, 64, CASE)),
                (produce, (a, b, ring_a, ring_b, full, empty, n, CASE)),
            ],
            [4, 1],
            [160, 24],
        )


def run_ring(case: str, readers: int) -> None:
    n = 4
    a, b, c = random(64, 64 * n), random(64 * n, 64), random(64 * readers, 64)
    ring[(1,)](*map(described, (a, b, c)), n, CASE=case, READERS=readers)
    for part in c.split(64):
        torch.testing.assert_close(part, a @ b, rtol=0.02, atol=0.1)


@gluon.jit
def copy(a, c, n, LEFT: gl.constexpr):
    """Copy n blocks through two stages; a stage is filled again while LEFT copies may go on."""
    stages = gl.allocate_shared_memory(gl.bfloat16, [2, 64, 64], a.layout)
    full = _barriers(2, 1)
    fence_async_shared()
    for i in range(n + 1):
        if i < n:
            ready = full.index(i % 2)
            mbarrier.expect(ready, a.nbytes_per_cta)
            tma.async_copy_global_to_shared(a, [0, i * 64], ready, stages.index(i % 2))
        if i > 0:
            mbarrier.wait(full.index((i - 1) % 2), ((i - 1) // 2) & 1)
            tma.async_copy_shared_to_global(c, [0, (i - 1) * 64], stages.index((i - 1) % 2))
            tma.store_wait(LEFT)
    tma.store_wait(0)


def run_copy(case: str, readers: int) -> None:
    a, c = random(64, 256), random(64, 256)
    copy[(1,)](described(a), described(c), 4, LEFT=1 if case else 0)
    torch.testing.assert_close(a, c, rtol=0, atol=0)


@gluon.jit
def _stage(b, staged, ready, CASE: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    i_k = gl.arange(0, 64, gl.SliceLayout(1, layout))
    i_n = gl.arange(0, 64, gl.SliceLayout(0, layout))
    staged.store(gl.load(b + i_k[:, None] * 64 + i_n[None, :]))
    if CASE != "no fence in the partition that stored":
        fence_async_shared()
    if CASE != "a staged operand is not announced":
        mbarrier.arrive(ready)


@gluon.jit
def _use(a, c, staged, a_memory, full, ready, CASE: gl.constexpr):
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    mbarrier.expect(full, a.nbytes_per_cta)
    tma.async_copy_global_to_shared(a, [0, 0], full, a_memory)
    mbarrier.wait(full, 0)
    if CASE != "a staged operand is not announced":
        mbarrier.wait(ready, 0)
    acc = warpgroup_mma(a_memory, staged, gl.zeros([64, 64], gl.float32, layout))
    i_m = gl.arange(0, 64, gl.SliceLayout(1, layout))
    i_n = gl.arange(0, 64, gl.SliceLayout(0, layout))
    gl.store(c + i_m[:, None] * 64 + i_n[None, :], acc.to(gl.bfloat16))


@gluon.jit
def staged_product(a, b, c, CASE: gl.constexpr):
    """c = a @ b; one partition stages b through its registers, another one multiplies."""
    staged = gl.allocate_shared_memory(gl.bfloat16, [64, 64], a.layout)
    a_memory = gl.allocate_shared_memory(gl.bfloat16, [64, 64], a.layout)
    barriers = _barriers(2, 1)
    fence_async_shared()
    full, ready = barriers.index(0), barriers.index(1)
    gl.warp_specialize(
        [
            (_use, (a, c, staged, a_memory, full, ready, CASE)),
            (_stage, (b, staged, ready, CASE)),
        ],
        [4],
        [80],
    )


def run_staged(case: str, readers: int) -> None:
    a, b, c = random(64, 64), random(64, 64), random(64, 64)
    staged_product[(1,)](described(a), b, c, CASE=case)
    torch.testing.assert_close(c, a @ b, rtol=0.02, atol=0.1)


@gluon.jit
def _meet(KIND: gl.constexpr):
    gl.inline_asm_elementwise(
        f"bar.{KIND} 8, 256; mov.b32 $0, 0;", "=r", [], gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def _leads(blocks, out, CASE: gl.constexpr):
    for i in range(blocks):
        # A block without work arrives and goes on.
        if CASE == "who has no work only arrives" and i == 0:
            _meet("arrive")
            _meet("arrive")
        else:
            _meet("sync")
    gl.store(out, blocks)


@gluon.jit
def _follows(blocks):
    for _ in range(blocks):
        _meet("sync")


@gluon.jit
def rounds(out, blocks, CASE: gl.constexpr):
    """Two partitions meet once a block."""
    gl.warp_specialize([(_leads, (blocks, out, CASE)), (_follows, (blocks,))], [4], [80])


def run_rounds(case: str, readers: int) -> None:
    out = torch.zeros(1, device="cuda", dtype=torch.int32)
    rounds[(1,)](out, 3, CASE=case)
    assert out.item() == 3


@triton.jit
def in_turns(flag, out, NEXT: tl.constexpr):
    """Programs add up one after the other; NEXT: who each of them lets on."""
    me = tl.program_id(0)
    while tl.atomic_add(flag, 0) != me:
        pass
    tl.store(out, tl.load(out) + me)
    tl.atomic_xchg(flag, me + NEXT)


def run_in_turns(case: str, readers: int) -> None:
    flag, out = (torch.zeros(1, device="cuda", dtype=torch.int32) for _ in range(2))
    in_turns[(6,)](flag, out, NEXT=2 if case else 1)
    assert out.item() == 15


@gluon.jit
def _tensor_core(a, b, acc, full, done, empty, n, CASE: gl.constexpr):
    for i in range(n):
        if CASE != "the accumulator is not waited for":
            mbarrier.wait(empty, (i & 1) ^ 1)
        blackwell.tcgen05_mma(a, b, acc, use_acc=False)
        if CASE != "the product is not committed":
            blackwell.tcgen05_commit(done)
        else:
            mbarrier.arrive(done)


@gluon.jit
def _drain(c, acc, done, empty, n, CASE: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1, 64], [32, 1], [4, 1], [0, 1])
    i_m = gl.arange(0, 64, gl.SliceLayout(1, layout))
    i_n = gl.arange(0, 64, gl.SliceLayout(0, layout))
    for i in range(n):
        mbarrier.wait(done, i & 1)
        values = acc.load(layout)
        mbarrier.arrive(empty)
        gl.store(c + i_m[:, None] * 64 + i_n[None, :], values.to(gl.bfloat16))


@gluon.jit
def on_blackwell(a, b, c, n, CASE: gl.constexpr):
    """c = a @ b, n times, through one accumulator in tensor memory."""
    a_memory = gl.allocate_shared_memory(gl.bfloat16, [64, 64], a.layout)
    b_memory = gl.allocate_shared_memory(gl.bfloat16, [64, 64], b.layout)
    layout: gl.constexpr = blackwell.TensorMemoryLayout([64, 64], col_stride=1)
    acc = blackwell.allocate_tensor_memory(gl.float32, [64, 64], layout)
    barriers = _barriers(3, 1)
    full, done, empty = barriers.index(0), barriers.index(1), barriers.index(2)
    fence_async_shared()
    mbarrier.expect(full, a.nbytes_per_cta + b.nbytes_per_cta)
    tma.async_copy_global_to_shared(a, [0, 0], full, a_memory)
    tma.async_copy_global_to_shared(b, [0, 0], full, b_memory)
    mbarrier.wait(full, 0)
    gl.warp_specialize(
        [
            (_drain, (c, acc, done, empty, n, CASE)),
            (_tensor_core, (a_memory, b_memory, acc, full, done, empty, n, CASE)),
        ],
        [1],
        [24],
    )


def run_on_blackwell(case: str, readers: int) -> None:
    a, b, c = random(64, 64), random(64, 64), random(64, 64)
    on_blackwell[(1,)](described(a), described(b), c, 3, CASE=case)
    torch.testing.assert_close(c, a @ b, rtol=0.02, atol=0.1)
