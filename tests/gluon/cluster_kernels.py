"""Small kernels for clusters and for block-scaled products, as they should be or with a fault."""

from typing import Any

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import blackwell, hopper
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

ROWS, PAIR_A, PAIR_B = ((1, 0),), ((1, 0),), ((0, 1),)  # how two CTAs share a tensor
COPIES = ((0, 0),)  # both have all of it


def described(x: torch.Tensor, block: list[int], spread: Any) -> TensorDescriptor:
    layout = gl.NVMMASharedLayout.get_default_for(block, gl.bfloat16, cga_layout=spread)
    return TensorDescriptor.from_tensor(x, block, layout)


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


@gluon.jit
def shared_operand(a, b, c, n, CASE: gl.constexpr):
    """Two CTAs have 64 rows each of a (128, 64 n); one copy of b (64 n, 64) is made for both."""
    acc_layout: gl.constexpr = gl.NVMMADistributedLayout(
        [3, 0], [4, 1], [16, 64, 16], cga_layout=[[1, 0]]
    )
    a_memory = gl.allocate_shared_memory(gl.bfloat16, a.block_shape, a.layout)
    b_memory = gl.allocate_shared_memory(gl.bfloat16, b.block_shape, b.layout)
    ready = mbarrier.allocate_mbarrier()
    mbarrier.init(ready, count=1)
    if CASE != "no sync behind the init":
        mbarrier.sync_cluster_init()
    acc = gl.zeros([128, 64], gl.float32, acc_layout)
    for i in range(n):
        mbarrier.expect(ready, a.nbytes_per_cta + b.nbytes_per_cta)
        tma.async_copy_global_to_shared(a, [0, i * 64], ready, a_memory)
        tma.async_copy_global_to_shared(b, [i * 64, 0], ready, b_memory, multicast=True)
        mbarrier.wait(ready, i & 1)
        acc = hopper.warpgroup_mma(a_memory, b_memory, acc)
        if CASE == "the other CTA arrives only":
            hopper.cluster.arrive()
        elif CASE != "the other CTA is not waited for":
            gl.barrier(cluster=True)
    i_m = gl.arange(0, 128)[:, None]
    i_n = gl.arange(0, 64)[None, :]
    gl.store(c + i_m * 64 + i_n, acc.to(gl.bfloat16))


def run_shared_operand(case: str) -> None:
    a, b, c = random(128, 192), random(192, 64), random(128, 64)
    given = described(a, [128, 64], ROWS), described(b, [64, 64], COPIES)
    shared_operand[(1,)](*given, c, 3, CASE=case, num_ctas=2)
    torch.testing.assert_close(c, a @ b, rtol=0.02, atol=0.1)


@gluon.jit
def product_of_two(a, b, c, n, ACC: gl.constexpr, CASE: gl.constexpr):
    """The first of two CTAs multiplies for both: a is split by rows, b by columns."""
    a_memory = gl.allocate_shared_memory(gl.bfloat16, a.block_shape, a.layout)
    b_memory = gl.allocate_shared_memory(gl.bfloat16, b.block_shape, b.layout)
    ready = mbarrier.allocate_mbarrier(two_ctas=True)
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(ready, count=1)
    mbarrier.init(done, count=2 if CASE == "two arrivals are waited for" else 1)
    if CASE != "no sync behind the init":
        mbarrier.sync_cluster_init()
    acc = blackwell.allocate_tensor_memory(gl.float32, [256, 64], ACC)
    for i in range(n):
        mbarrier.expect(ready, a.nbytes_per_cta + b.nbytes_per_cta)
        tma.async_copy_global_to_shared(a, [0, i * 64], ready, a_memory)
        tma.async_copy_global_to_shared(b, [i * 64, 0], ready, b_memory)
        if CASE != "the copies are not waited for":
            mbarrier.wait(ready, i & 1)
        blackwell.tcgen05_mma(a_memory, b_memory, acc, use_acc=i > 0, mbarriers=[done])
        if CASE != "the product is not waited for":
            mbarrier.wait(done, i & 1)
    values = acc.load(gl.AutoLayout())
    i_m = gl.arange(0, 256)[:, None]
    i_n = gl.arange(0, 64)[None, :]
    gl.store(c + i_m * 64 + i_n, values.to(gl.bfloat16))


def run_product_of_two(case: str) -> None:
    a, b, c = random(256, 192), random(192, 64), random(256, 64)
    given = described(a, [256, 64], PAIR_A), described(b, [64, 64], PAIR_B)
    acc = blackwell.TensorMemoryLayout([128, 64], col_stride=1, cta_split_num=(2, 1), two_ctas=True)
    product_of_two[(1,)](*given, c, 3, ACC=acc, CASE=case, num_ctas=2)
    torch.testing.assert_close(c, a @ b, rtol=0.02, atol=0.1)


@gluon.jit
def scaled_product(
    a, b, c, a_scale, b_scale, A: gl.constexpr, B: gl.constexpr, VEC: gl.constexpr,
    CASE: gl.constexpr,
):  # fmt: skip
    """c (128, 64) = a (128, 128) @ b (64, 128).T, each block of VEC values with a scale."""
    a_memory = gl.allocate_shared_memory(a.dtype, a.block_shape, a.layout)
    b_memory = gl.allocate_shared_memory(b.dtype, b.block_shape, b.layout)
    ready = mbarrier.allocate_mbarrier()
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(ready, count=1)
    mbarrier.init(done, count=1)
    mbarrier.expect(ready, a.nbytes_per_cta + b.nbytes_per_cta)
    tma.async_copy_global_to_shared(a, [0, 0], ready, a_memory)
    tma.async_copy_global_to_shared(b, [0, 0], ready, b_memory)
    mbarrier.wait(ready, 0)
    layout: gl.constexpr = blackwell.TensorMemoryScalesLayout()
    kind: gl.constexpr = a_scale.dtype.element_ty
    scales_a = blackwell.allocate_tensor_memory(kind, [128, 128 // VEC], layout)
    scales_b = blackwell.allocate_tensor_memory(kind, [64, 128 // VEC], layout)
    i_k = gl.arange(0, 128 // VEC)[None, :]
    scales_a.store(gl.load(a_scale + gl.arange(0, 128)[:, None] * (128 // VEC) + i_k))
    if CASE != "scales that nobody wrote":
        scales_b.store(gl.load(b_scale + gl.arange(0, 64)[:, None] * (128 // VEC) + i_k))
    acc_layout: gl.constexpr = blackwell.TensorMemoryLayout([128, 64], col_stride=1)
    acc = blackwell.allocate_tensor_memory(gl.float32, [128, 64], acc_layout)
    blackwell.tcgen05_mma_scaled(
        a_memory, b_memory.permute((1, 0)), acc, scales_a, scales_b, A, B, use_acc=False
    )
    if CASE == "scales written over too early":
        scales_a.store(gl.load(a_scale + gl.arange(0, 128)[:, None] * (128 // VEC) + i_k))
    blackwell.tcgen05_commit(done)
    mbarrier.wait(done, 0)
    i_n = gl.arange(0, 64)[None, :]
    gl.store(c + gl.arange(0, 128)[:, None] * 64 + i_n, acc.load(gl.AutoLayout()))


@gluon.jit
def early_hand_back(out, n, LATER: gl.constexpr):
    """Two partitions pass two slots; LATER: the slot after the one that was read is handed back."""
    full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(2):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    fence_async_shared()
    gl.warp_specialize(
        [(_reads, (out, full, empty, n, LATER)), (_fills, (full, empty, n))], [1], [24]
    )


@gluon.jit
def _fills(full, empty, n):
    for i in range(n):
        mbarrier.wait(empty.index(i % 2), ((i // 2) & 1) ^ 1)
        mbarrier.arrive(full.index(i % 2))


@gluon.jit
def _reads(out, full, empty, n, LATER: gl.constexpr):
    for i in range(n):
        mbarrier.wait(full.index(i % 2), (i // 2) & 1)
        mbarrier.arrive(empty.index((i + LATER) % 2))
    gl.store(out, n)


def run_early_hand_back(later: int) -> None:
    out = torch.zeros(1, device="cuda", dtype=torch.int32)
    early_hand_back[(1,)](out, 4, LATER=later)
    assert out.item() == 4
