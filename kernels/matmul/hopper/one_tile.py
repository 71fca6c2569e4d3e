"""The matmul of Hopper GPUs in Gluon where no program has more than one tile.

Such a product takes as long to start as to multiply: every 128 bytes of code wait for memory. So
there is little of it. No warps are told apart, the grid is that of the tiles, without a division,
and one thread asks for the copies between two products. docs/kernels/hopper/matmul.md explains it.
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

from .persistent import copy_block
from .store import bias_buffers, bring_bias, store


@gluon.jit
def _ask(a, b, a_stage, b_stage, ready, rows, column, k, A_MAJOR_M: gl.constexpr, B_MAJOR_N: gl.constexpr):  # fmt: skip  # noqa: E501
    """Start the copies of a block of A and one of B into one stage."""
    ROWS: gl.constexpr = a.block_shape[0]
    if not A_MAJOR_M and a_stage.shape[0] > ROWS:
        a_stage = a_stage.slice(0, ROWS, 0)  # those that exist, rounded up: no other is used
    VALUES: gl.constexpr = a_stage.numel + b_stage.numel
    mbarrier.expect(ready, VALUES * a.dtype.primitive_bitwidth // 8)
    copy_block(a, rows, k, ready, a_stage, A_MAJOR_M)
    copy_block(b, (column,), k, ready, b_stage, B_MAJOR_N)


@gluon.jit(do_not_specialize=["N", "K", "a_phase", "a_pitch"])
def matmul_hopper_once(
    a,
    b,
    c,
    bias,
    N,
    K,
    a_phase,
    a_pitch,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr,
    CLASSES: gl.constexpr,
    SPLITS: gl.constexpr,
    A_MAJOR_M: gl.constexpr,
    B_MAJOR_N: gl.constexpr,
    ACTIVATION: gl.constexpr,
):
    """c = activation(a @ b + bias); a: (M, K) or, A_MAJOR_M, (K, M); b: (N, K) or (K, N). K is at
    least 1. Axes 2 and 0 of the grid are rows of tiles, axis 1 columns: neighbours, which run on
    neighbouring processors, share rows and columns.

    CLASSES: 0, or a and c are (M / CLASSES, CLASSES, K or N), and a tile has rows of one class.
    They begin at one place of a line of memory, (a_phase + class * a_pitch) values behind its
    start, and the first step begins so far before them: steps end where lines do.

    SPLITS: axis 1 cuts K, too, and c is (SPLITS, M, N): the parts, which another launch adds."""
    a_block: gl.constexpr = a.block_shape if A_MAJOR_M else [BLOCK_M] + a.block_shape[1:]  # noqa: RUF005
    a_ring = gl.allocate_shared_memory(a.dtype, [STAGES] + a_block, a.layout)  # noqa: RUF005
    b_ring = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_shape, b.layout)  # noqa: RUF005
    full = barriers(STAGES, 1)
    fence_async_shared()
    partition_barrier()
    i_m = gl.program_id(2) * gl.num_programs(0) + gl.program_id(0)
    column = gl.program_id(1) // SPLITS * BLOCK_N
    first, last = gl.to_tensor(0), K
    if SPLITS > 1:
        gdc_launch_dependents()
        i_split = gl.program_id(1) % SPLITS
        part = gl.cdiv(gl.cdiv(K, BLOCK_K), SPLITS) * BLOCK_K
        first = i_split * part
        last = min(K, first + part)
        rows = (i_m * BLOCK_M,)
        to = (i_split, i_m * BLOCK_M)
    elif CLASSES:
        i_class = i_m % CLASSES
        first -= (a_phase + i_class * a_pitch) % (1024 // a.dtype.primitive_bitwidth)
        rows = (i_m // CLASSES * BLOCK_M, i_class)  # type: ignore[assignment]
        to = rows  # type: ignore[assignment]
    else:
        rows = (i_m * BLOCK_M,)
        to = rows  # type: ignore[assignment]
    gl.assume(first < last)  # else there is code for no step at all
    for i in range(0, min(STAGES, gl.cdiv(last - first, BLOCK_K))):
        _ask(a, b, a_ring.index(i), b_ring.index(i), full.index(i), rows, column, first + i * BLOCK_K, A_MAJOR_M, B_MAJOR_N)  # fmt: skip  # noqa: E501

    at = Cursor(gl.to_tensor(0), gl.to_tensor(0), STAGES)
    # Beside the ring, too: it is filled while the last product reads, and where that is the ring's
    # first stage it would be what a buffer made later overwrites.
    brought = bias_buffers(BLOCK_N, c.block_shape[-1]) if bias is not None else bias
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, BLOCK_N, 16])
    acc = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, LAYOUT)
    for k in range(first, last, BLOCK_K):
        mbarrier.wait(full.index(at.stage), at.phase)
        b_a = a_ring.index(at.stage)
        b_b = b_ring.index(at.stage)
        if CLASSES:
            b_a = b_a.reshape([BLOCK_M, BLOCK_K])
        if A_MAJOR_M:
            b_a = b_a.permute((1, 0))
        if not B_MAJOR_N:
            b_b = b_b.permute((1, 0))
        acc = warpgroup_mma(b_a, b_b, acc, use_acc=k > first, is_async=True)
        # One product stays in flight; the stage of the one before is filled again, when all warps
        # have seen that it is done.
        acc = warpgroup_mma_wait(1, deps=[acc])
        ahead = k + (STAGES - 1) * BLOCK_K
        if (k > first) & (ahead < last):
            partition_barrier()
            free = at.previous_stage()
            _ask(a, b, a_ring.index(free), b_ring.index(free), full.index(free), rows, column, ahead, A_MAJOR_M, B_MAJOR_N)  # fmt: skip  # noqa: E501
        at = at.next()
    if bias is not None:
        bring_bias(bias, brought, 0, BLOCK_N // c.block_shape[-1], column, N)
    acc = warpgroup_mma_wait(0, deps=[acc])

    shape: gl.constexpr = [BLOCK_M, c.block_shape[-1]]
    FLAT: gl.constexpr = gl.NVMMASharedLayout.get_default_for(shape, c.dtype)
    staging = gl.allocate_shared_memory(c.dtype, shape, FLAT)
    store(c, staging, brought, to, column, acc, N, ACTIVATION, -1, 0 if bias is not None else -1)  # fmt: skip  # noqa: E501
    tma.store_wait(0)
