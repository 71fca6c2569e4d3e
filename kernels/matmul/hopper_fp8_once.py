"""The matmul of fp8 operands on Hopper where no program has more than one tile, in Gluon.

As hopper_once.py, and sums are promoted to fp32 once in 128 of K as in hopper_fp8_kernel.py. Where
tiles are small a program's time is that of its copies: so many are asked for at once as shared
memory holds. A stage has several blocks of 128 of K, whose products are on their way together, or
one, and the next is waited for beside its product.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.language.extra.cuda import gdc_launch_dependents

from ..hopper import Cursor, barriers, partition_barrier
from .hopper_kernel import store


@gluon.jit
def _ask(a, b, a_ring, b_ring, ready, stage, row, column, k, BLOCKS: gl.constexpr, wanted=True):  # fmt: skip  # noqa: E501
    """Start the copies of BLOCKS blocks of A and of B into one stage, if wanted."""
    BLOCK_K: gl.constexpr = a.block_shape[1]
    ROWS: gl.constexpr = a.block_shape[0]  # of A that exist, rounded up: the others are not used
    mbarrier.expect(ready, BLOCKS * BLOCK_K * (ROWS + b.block_shape[0]), pred=wanted)
    for i in gl.static_range(BLOCKS):
        at = stage * BLOCKS + i
        to = b_ring.index(at)
        tma.async_copy_global_to_shared(b, [column, k + i * BLOCK_K], ready, to, pred=wanted)
        to = a_ring.index(at)
        if a_ring.shape[1] > ROWS:
            to = to.slice(0, ROWS, 0)
        tma.async_copy_global_to_shared(a, [row, k + i * BLOCK_K], ready, to, pred=wanted)


@gluon.jit
def _product(a_ring, b_ring, block, nothing):
    """Start the product of one block of A and one of B."""
    b_a = a_ring.index(block)
    b_b = b_ring.index(block).permute((1, 0))
    return warpgroup_mma(b_a, b_b, nothing, use_acc=False, is_async=True)


@gluon.jit
def _products(a_ring, b_ring, stage, nothing, BLOCKS: gl.constexpr):
    """The products of a stage's blocks, each in fp32."""
    pending = ()
    for i in gl.static_range(BLOCKS):
        part = _product(a_ring, b_ring, stage * BLOCKS + i, nothing)
        pending = pending + (part,)  # type: ignore[assignment]  # noqa: RUF005
    return warpgroup_mma_wait(0, deps=pending)


@gluon.jit
def _sum_of_blocks(a, b, a_ring, b_ring, full, row, column, first, last, nothing, STAGES: gl.constexpr):  # fmt: skip  # noqa: E501
    """The sum over K where a stage has one block: the next stage is waited for and the last one
    asked again beside the product of this one."""
    BLOCK_K: gl.constexpr = a.block_shape[1]
    acc = nothing
    at = Cursor(gl.to_tensor(0), gl.to_tensor(0), STAGES)
    mbarrier.wait(full.index(0), 0)
    pending = _product(a_ring, b_ring, at.stage, nothing)
    for k in range(first + BLOCK_K, last, BLOCK_K):
        used = at.stage
        at = at.next()
        mbarrier.wait(full.index(at.stage), at.phase)
        acc = acc + warpgroup_mma_wait(0, deps=[pending])
        pending = _product(a_ring, b_ring, at.stage, nothing)
        ahead = k + (STAGES - 1) * BLOCK_K
        partition_barrier()  # all warps are done with the stage
        # A branch here would have the assembler wait for the product first.
        _ask(a, b, a_ring, b_ring, full.index(used), used, row, column, ahead, 1, ahead < last)
    return acc + warpgroup_mma_wait(0, deps=[pending])


@gluon.jit
def _sum_of_stages(a, b, a_ring, b_ring, full, row, column, first, last, nothing, STAGES: gl.constexpr, BLOCKS: gl.constexpr):  # fmt: skip  # noqa: E501
    """The sum over K where the products of a stage's blocks are on their way together."""
    STEP: gl.constexpr = BLOCKS * a.block_shape[1]
    acc = nothing
    at = Cursor(gl.to_tensor(0), gl.to_tensor(0), STAGES)
    for k in range(first, last, STEP):
        mbarrier.wait(full.index(at.stage), at.phase)
        parts = _products(a_ring, b_ring, at.stage, nothing, BLOCKS)
        ahead = k + STAGES * STEP
        if ahead < last:
            partition_barrier()  # all warps are done with the stage
            _ask(a, b, a_ring, b_ring, full.index(at.stage), at.stage, row, column, ahead, BLOCKS)
        for i_block in gl.static_range(BLOCKS):
            acc = acc + parts[i_block]
        at = at.next()
    return acc


@gluon.jit(do_not_specialize=["M", "N", "K"])
def matmul_hopper_fp8_once(
    a,
    b,
    c,
    a_scale,
    b_scale,
    bias,
    M,
    N,
    K,
    stride_am,
    stride_bn,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCKS: gl.constexpr,
    STAGES: gl.constexpr,
    SPLITS: gl.constexpr,
    A_SCALE: gl.constexpr,
    B_SCALE: gl.constexpr,
    HAS_BIAS: gl.constexpr,
    ACTIVATION: gl.constexpr,
):
    """c = activation((a * a_scale) @ (b * b_scale) + bias); a: (M, K), b: (N, K), K at least 1.
    Axis 0 of the grid are rows of tiles, axis 1 columns. BLOCKS blocks of K make a stage.

    SPLITS: axis 1 cuts K, too, and c is (SPLITS, M, N): the parts, which another launch adds."""
    BLOCK_K: gl.constexpr = a.block_shape[1]
    STEP: gl.constexpr = BLOCKS * BLOCK_K
    a_ring = gl.allocate_shared_memory(a.dtype, [STAGES * BLOCKS, BLOCK_M, BLOCK_K], a.layout)
    b_ring = gl.allocate_shared_memory(b.dtype, [STAGES * BLOCKS] + b.block_shape, b.layout)  # noqa: RUF005
    full = barriers(STAGES, 1)
    fence_async_shared()
    partition_barrier()
    row = gl.program_id(0) * BLOCK_M
    column = gl.program_id(1) // SPLITS * BLOCK_N
    first, last = gl.to_tensor(0), K
    to = (row,)
    if SPLITS > 1:
        gdc_launch_dependents()
        i_split = gl.program_id(1) % SPLITS
        part = gl.cdiv(gl.cdiv(K, STEP), SPLITS) * STEP
        first = i_split * part
        last = min(K, first + part)
        to = (i_split, row)  # type: ignore[assignment]
    gl.assume(first < last)  # else there is code for no step at all
    for i in range(0, min(STAGES, gl.cdiv(last - first, STEP))):
        _ask(a, b, a_ring, b_ring, full.index(i), i, row, column, first + i * STEP, BLOCKS)

    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, BLOCK_N, 32])
    nothing = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, LAYOUT)
    if BLOCKS == 1:
        acc = _sum_of_blocks(a, b, a_ring, b_ring, full, row, column, first, last, nothing, STAGES)
    else:
        acc = _sum_of_stages(a, b, a_ring, b_ring, full, row, column, first, last, nothing, STAGES, BLOCKS)  # fmt: skip  # noqa: E501

    if A_SCALE != "none":
        o_m = row + gl.arange(0, BLOCK_M, gl.SliceLayout(1, LAYOUT))
        acc *= gl.load(a_scale + o_m * stride_am, mask=o_m < M, other=0.0)[:, None]
    if B_SCALE != "none":
        o_n = column + gl.arange(0, BLOCK_N, gl.SliceLayout(0, LAYOUT))
        acc *= gl.load(b_scale + o_n * stride_bn, mask=o_n < N, other=0.0)[None, :]
    shape: gl.constexpr = [BLOCK_M, c.block_shape[-1]]
    FLAT: gl.constexpr = gl.NVMMASharedLayout.get_default_for(shape, c.dtype)
    staging = gl.allocate_shared_memory(c.dtype, shape, FLAT)
    store(c, staging, bias, to, column, acc, N, HAS_BIAS, ACTIVATION)
    tma.store_wait(0)
