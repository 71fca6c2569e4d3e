"""The matmul of fp8 operands on Hopper where no program has more than one tile, in Gluon.

As one_tile.py of 16 bits, and sums are promoted to fp32 once in 128 of K as in persistent.py. Where
tiles are small a program's time is that of its copies: so many are asked for at once as shared
memory holds. A stage has several blocks of 128 of K, whose products are on their way together, or
one, and the next is waited for beside its product.

Scales of blocks lie anywhere in memory, and a load takes as long as two products. So those of a
chunk of K are loaded at once behind the first copies, multiplied, and kept in shared memory.
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

from kernels.device.hopper_rings import Cursor, barriers, partition_barrier
from kernels.matmul.common.product import BLOCK
from kernels.matmul.hopper.store import store

from .tile import ask_scales, scales_memory, scales_of_tensors, wait_for_scales


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
def _bring_scales(scales, a_scale, b_scale, row, column, k, last, M, stride_am, stride_ak, stride_bk, stride_bn, A_SCALE: gl.constexpr, B_SCALE: gl.constexpr):  # fmt: skip  # noqa: E501
    """Bring what the rows' products with a block of K are multiplied by into ``scales``, (CHUNK,
    ROWS): of the blocks from k on, 0 from ``last`` on."""
    CHUNK: gl.constexpr = scales.shape[0]
    ROWS: gl.constexpr = scales.shape[1]
    # Few lines of memory a load, whether a row's scales are neighbours or a column's.
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, 1], [4, 8], [1, gl.num_warps()], [1, 0])
    FLAT: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    o_k = gl.arange(0, CHUNK, gl.SliceLayout(1, LAYOUT))
    in_k = o_k * BLOCK < last - k
    b_scales = gl.full([CHUNK, ROWS], 1.0, gl.float32, LAYOUT)
    if A_SCALE == "blocks":
        o_m = gl.arange(0, ROWS, gl.SliceLayout(0, LAYOUT))
        in_m = o_m < M - row
        p_sa = a_scale + row.to(gl.int64) * stride_am + (k // BLOCK).to(gl.int64) * stride_ak
        p_sa += o_k[:, None] * stride_ak + o_m[None, :] * stride_am
        b_scales = gl.load(p_sa, mask=in_k[:, None] & in_m[None, :], other=0.0)
    if B_SCALE == "blocks":
        # A tile lies within one block of columns.
        p_sb = b_scale + (column // BLOCK).to(gl.int64) * stride_bn
        p_sb += (k // BLOCK).to(gl.int64) * stride_bk
        b_scales = b_scales * gl.load(p_sb + o_k * stride_bk, mask=in_k, other=0.0)[:, None]
    scales._reinterpret(gl.float32, [CHUNK, ROWS], FLAT).store(b_scales)


@gluon.jit
def _factor(scales, i_block, product):
    """What the rows of the product with one block of a chunk are multiplied by."""
    if scales is None:
        return 1
    else:
        N: gl.constexpr = product.shape[1]
        LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, N, 32])
        return scales.index(i_block).load(gl.SliceLayout(1, LAYOUT))


@gluon.jit
def _plus(acc, part, factor, scales):
    if scales is None:
        return acc + part
    else:
        return acc + part * factor[:, None]


@gluon.jit
def _sum_of_blocks(a, b, a_ring, b_ring, full, row, column, first, end, last, at, acc, nothing, scales, STAGES: gl.constexpr, MORE: gl.constexpr):  # fmt: skip  # noqa: E501
    """The sum over K from first to end where a stage has one block: the next stage is waited for
    and the last one asked again beside the product of this one. MORE may follow up to last."""
    BLOCK_K: gl.constexpr = a.block_shape[1]
    mbarrier.wait(full.index(at.stage), at.phase)
    pending = _product(a_ring, b_ring, at.stage, nothing)
    for k in range(first + BLOCK_K, end, BLOCK_K):
        used = at.stage
        at = at.next()
        factor = _factor(scales, (k - first) // BLOCK_K - 1, nothing)
        mbarrier.wait(full.index(at.stage), at.phase)
        acc = _plus(acc, warpgroup_mma_wait(0, deps=[pending]), factor, scales)
        pending = _product(a_ring, b_ring, at.stage, nothing)
        ahead = k + (STAGES - 1) * BLOCK_K
        partition_barrier()  # all warps are done with the stage
        # A branch here would have the assembler wait for the product first.
        _ask(a, b, a_ring, b_ring, full.index(used), used, row, column, ahead, 1, ahead < last)
    factor = _factor(scales, (end - first - 1) // BLOCK_K, nothing)
    acc = _plus(acc, warpgroup_mma_wait(0, deps=[pending]), factor, scales)
    if MORE:
        used = at.stage
        ahead = end + (STAGES - 1) * BLOCK_K
        partition_barrier()
        _ask(a, b, a_ring, b_ring, full.index(used), used, row, column, ahead, 1, ahead < last)
        at = at.next()
    return acc, at


@gluon.jit
def _sum_of_stages(a, b, a_ring, b_ring, full, row, column, first, end, last, at, acc, nothing, scales, STAGES: gl.constexpr, BLOCKS: gl.constexpr):  # fmt: skip  # noqa: E501
    """The sum over K from first to end where the products of a stage's blocks are on their way
    together; what is asked ahead ends at last."""
    BLOCK_K: gl.constexpr = a.block_shape[1]
    STEP: gl.constexpr = BLOCKS * BLOCK_K
    for k in range(first, end, STEP):
        factors = ()
        for i_block in gl.static_range(BLOCKS):
            factor = _factor(scales, (k - first) // BLOCK_K + i_block, nothing)
            factors = factors + (factor,)  # type: ignore[assignment]  # noqa: RUF005
        mbarrier.wait(full.index(at.stage), at.phase)
        parts = _products(a_ring, b_ring, at.stage, nothing, BLOCKS)
        ahead = k + STAGES * STEP
        if ahead < last:
            partition_barrier()  # all warps are done with the stage
            _ask(a, b, a_ring, b_ring, full.index(at.stage), at.stage, row, column, ahead, BLOCKS)
        for i_block in gl.static_range(BLOCKS):
            acc = _plus(acc, parts[i_block], factors[i_block], scales)
        at = at.next()
    return acc, at


@gluon.jit
def _sum(a, b, a_ring, b_ring, full, row, column, first, end, last, at, acc, nothing, scales, STAGES: gl.constexpr, BLOCKS: gl.constexpr, MORE: gl.constexpr):  # fmt: skip  # noqa: E501
    if BLOCKS == 1:
        return _sum_of_blocks(a, b, a_ring, b_ring, full, row, column, first, end, last, at, acc, nothing, scales, STAGES, MORE)  # fmt: skip  # noqa: E501
    else:
        return _sum_of_stages(a, b, a_ring, b_ring, full, row, column, first, end, last, at, acc, nothing, scales, STAGES, BLOCKS)  # fmt: skip  # noqa: E501


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
    stride_ak,
    stride_bk,
    stride_bn,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCKS: gl.constexpr,
    STAGES: gl.constexpr,
    SPLITS: gl.constexpr,
    CHUNK: gl.constexpr,
    MORE: gl.constexpr,
    A_SCALE: gl.constexpr,
    B_SCALE: gl.constexpr,
    ACTIVATION: gl.constexpr,
):
    """c = activation((a * a_scale) @ (b * b_scale) + bias); a: (M, K), b: (N, K), K at least 1.
    Axis 0 of the grid are rows of tiles, axis 1 columns. BLOCKS blocks of K make a stage.

    SPLITS: axis 1 cuts K, too, and c is (SPLITS, M, N): the parts, which another launch adds.
    CHUNK: with scales of blocks, of how many blocks of K, whole stages, shared memory holds them;
    else 0. MORE: a program's part of K has more than those."""
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
    of_a, of_b = scales_of_tensors(a_scale, b_scale, A_SCALE, B_SCALE)
    a_ahead = scales_memory([BLOCK_M], A_SCALE)
    b_ahead = scales_memory([BLOCK_N], B_SCALE)
    ask_scales(a_ahead, a_scale, row, M, stride_am, A_SCALE)
    ask_scales(b_ahead, b_scale, column, N, stride_bn, B_SCALE)

    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, BLOCK_N, 32])
    nothing = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, LAYOUT)
    at = Cursor(gl.to_tensor(0), gl.to_tensor(0), STAGES)
    if CHUNK == 0:
        acc, at = _sum(a, b, a_ring, b_ring, full, row, column, first, last, last, at, nothing, nothing, None, STAGES, BLOCKS, False)  # fmt: skip  # noqa: E501
    else:
        scales = gl.allocate_shared_memory(
            gl.float32, [CHUNK, BLOCK_M], gl.SwizzledSharedLayout(1, 1, 1, [0])
        )
        if not MORE:
            _bring_scales(scales, a_scale, b_scale, row, column, first, last, M, stride_am, stride_ak, stride_bk, stride_bn, A_SCALE, B_SCALE)  # fmt: skip  # noqa: E501
            partition_barrier()
            acc, at = _sum(a, b, a_ring, b_ring, full, row, column, first, last, last, at, nothing, nothing, scales, STAGES, BLOCKS, False)  # fmt: skip  # noqa: E501
        else:
            acc = nothing
            for begin in range(first, last, CHUNK * BLOCK_K):
                end = min(begin + CHUNK * BLOCK_K, last)
                gl.assume(begin < end)
                partition_barrier()  # all warps are done with the chunk before
                _bring_scales(scales, a_scale, b_scale, row, column, begin, last, M, stride_am, stride_ak, stride_bk, stride_bn, A_SCALE, B_SCALE)  # fmt: skip  # noqa: E501
                partition_barrier()
                acc, at = _sum(a, b, a_ring, b_ring, full, row, column, begin, end, last, at, acc, nothing, scales, STAGES, BLOCKS, True)  # fmt: skip  # noqa: E501

    wait_for_scales(A_SCALE, B_SCALE)
    if A_SCALE == "ahead":
        acc *= a_ahead.load(gl.SliceLayout(1, LAYOUT))[:, None]
    elif A_SCALE == "tensor":
        acc *= of_a
    if B_SCALE == "tensor":
        acc *= of_b
    elif B_SCALE == "ahead":
        acc *= b_ahead.load(gl.SliceLayout(0, LAYOUT))[None, :]
    shape: gl.constexpr = [BLOCK_M, c.block_shape[-1]]
    FLAT: gl.constexpr = gl.NVMMASharedLayout.get_default_for(shape, c.dtype)
    staging = gl.allocate_shared_memory(c.dtype, shape, FLAT)
    store(c, staging, bias, to, column, acc, N, ACTIVATION)
    tma.store_wait(0)
