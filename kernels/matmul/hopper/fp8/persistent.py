"""The matmul of fp8 operands on Hopper, in Gluon: sums promoted to fp32 once a block of K.

As for 16 bits, whose producer it has. While the matrix unit adds fp8 products it keeps 14
bits, so what a block of K adds is added in the unit, and the blocks in fp32. A second accumulator
of all columns would need more registers than there are: a consumer multiplies a part of its columns
at a time, and adds it while the other consumer multiplies. portable/kernel.py is its twin
in tests.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma_wait,
)

from kernels.device.hopper_rings import ROWS, Cursor, specialise
from kernels.matmul.hopper.persistent import Problem, new_ring, produce
from kernels.matmul.hopper.store import store

from .block_scales import consume_pairs
from .tile import (
    BUFFERS,
    LAYOUT,
    WIDTH,
    ask_scales,
    multiply,
    scales_memory,
    scales_of_tensors,
    wait_for_scales,
)

CONSUMERS = gl.constexpr(2)


@gluon.jit
def _consume(c, a_scale, b_scale, bias, ring, ahead, c_staging, problem, stride_am, stride_ak, stride_bk, stride_bn, A_SCALE: gl.constexpr, B_SCALE: gl.constexpr, ACTIVATION: gl.constexpr, I_CONSUMER: gl.constexpr):  # fmt: skip  # noqa: E501
    if A_SCALE == "blocks" or B_SCALE == "blocks":
        consume_pairs(c, a_scale, b_scale, bias, ring, c_staging, problem, I_CONSUMER, stride_am, stride_ak, stride_bk, stride_bn, A_SCALE, B_SCALE, ACTIVATION)  # fmt: skip  # noqa: E501
    else:
        _consume_blocks(c, a_scale, b_scale, bias, ring, ahead, c_staging, problem, I_CONSUMER, stride_am, stride_bn, A_SCALE, B_SCALE, ACTIVATION)  # fmt: skip  # noqa: E501


@gluon.jit
def _consume_blocks(c, a_scale, b_scale, bias, ring, ahead, c_staging, problem, I_CONSUMER: gl.constexpr, stride_am, stride_bn, A_SCALE: gl.constexpr, B_SCALE: gl.constexpr, ACTIVATION: gl.constexpr):  # fmt: skip  # noqa: E501
    """One block of K at a time, in as many parts as a tile has. ``ahead``: where the scales of a
    consumer's rows and columns arrive while it multiplies, if they are asked for ahead."""
    PARTS: gl.constexpr = problem.BLOCK_N // WIDTH
    # The next stage, be it of the next tile, is waited for beside the last product of this one; not
    # where sums leave as fp32, whose tiles of 256 columns then spill.
    EARLY: gl.constexpr = c.dtype.primitive_bitwidth == 16
    at = Cursor(gl.to_tensor(0), gl.to_tensor(0), ring.STAGES)
    n_tiles = problem.tiles()
    a_ahead, b_ahead = ahead
    if A_SCALE == "ahead":
        a_ahead = a_ahead.index(I_CONSUMER)
    if B_SCALE == "ahead":
        b_ahead = b_ahead.index(I_CONSUMER)
    of_a, of_b = scales_of_tensors(a_scale, b_scale, A_SCALE, B_SCALE)
    if EARLY:
        mbarrier.wait(ring.full.index(at.stage), at.phase)  # no program is without a tile
    for i_tile in range(gl.program_id(0), n_tiles, gl.num_programs(0)):
        is_last = i_tile + gl.num_programs(0) >= n_tiles
        row, column = problem.tile(i_tile)
        row += I_CONSUMER * ROWS
        # All warps have read those of the tile before: its last barriers came behind.
        ask_scales(a_ahead, a_scale, row, problem.M, stride_am, A_SCALE)
        ask_scales(b_ahead, b_scale, column, problem.N, stride_bn, B_SCALE)
        accs = ()
        for _ in gl.static_range(PARTS):
            accs = accs + (gl.zeros([ROWS, WIDTH], gl.float32, LAYOUT),)  # type: ignore[assignment]  # noqa: RUF005
        for k in range(0, problem.K, problem.BLOCK_K):
            if not EARLY:
                mbarrier.wait(ring.full.index(at.stage), at.phase)
            used = at.stage
            a = ring.a.index(used * problem.CONSUMERS + I_CONSUMER)
            b = ring.b.index(used)
            added = ()
            for i in gl.static_range(PARTS):
                pending = multiply(a, b, i)
                if EARLY and i == PARTS - 1:
                    at = at.next()
                    more = (k + problem.BLOCK_K < problem.K) | (not is_last)
                    mbarrier.wait(ring.full.index(at.stage), at.phase, pred=more)
                part = warpgroup_mma_wait(0, deps=[pending])
                if i == PARTS - 1:
                    mbarrier.arrive(ring.empty.index(used))
                added = added + (accs[i] + part,)  # type: ignore[assignment]  # noqa: RUF005
            accs = added
            if not EARLY:
                at = at.next()
        wait_for_scales(A_SCALE, B_SCALE)
        for i in gl.static_range(PARTS):
            x = accs[i]  # type: ignore[var-annotated]
            first = column + i * WIDTH
            if A_SCALE == "ahead":
                x *= a_ahead.load(gl.SliceLayout(1, LAYOUT))[:, None]
            elif A_SCALE == "tensor":
                x *= of_a
            if B_SCALE == "tensor":
                x *= of_b
            elif B_SCALE == "ahead":
                part = b_ahead.slice(i * WIDTH, WIDTH, 0)
                x *= part.load(gl.SliceLayout(0, LAYOUT))[None, :]
            if A_SCALE == "none" and B_SCALE == "none" and PARTS > 1:
                # 1, which the compiler does not know: sums that nothing multiplies are stored from
                # where the loop adds them, and the loop spills for that.
                x *= gl.where(problem.K > 0, 1.0, 0.0)
            store(c, c_staging, bias, (row,), first, x, problem.N, ACTIVATION, I_CONSUMER * BUFFERS, TURNS=BUFFERS)  # fmt: skip  # noqa: E501
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["M", "N", "K"])
def matmul_hopper_fp8(
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
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP_M: gl.constexpr,
    A_SCALE: gl.constexpr,
    B_SCALE: gl.constexpr,
    ACTIVATION: gl.constexpr,
):
    """c = activation((a * a_scale) @ (b * b_scale) + bias); a: (M, K), b: (N, K)."""
    nothing = gl.to_tensor(0)
    problem = Problem(M, N, K, nothing, nothing, 0, CONSUMERS, ROWS, BLOCK_N, BLOCK_K, GROUP_M, False, False, 1)  # fmt: skip  # noqa: E501
    ring = new_ring(a, b, STAGES, CONSUMERS)
    shape: gl.constexpr = [CONSUMERS * BUFFERS] + c.block_shape  # noqa: RUF005
    c_staging = gl.allocate_shared_memory(c.dtype, shape, c.layout)
    ahead = (
        scales_memory([CONSUMERS, ROWS], A_SCALE),
        scales_memory([CONSUMERS, BLOCK_N], B_SCALE),
    )
    fence_async_shared()
    # Constexprs survive only in tuples written in place.
    specialise(
        _consume,
        (
            c, a_scale, b_scale, bias, ring, ahead, c_staging, problem,
            stride_am, stride_ak, stride_bk, stride_bn, A_SCALE, B_SCALE, ACTIVATION,
        ),
        produce, (a, b, ring, problem), CONSUMERS,
    )  # fmt: skip
