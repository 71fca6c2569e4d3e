"""The consumers of Hopper's fp8 matmul beside scales of blocks, two products at a time, in Gluon.

A consumer waits for its stage, for its product and for the scales, and one other does not hide
that. So it has two products on their way, and scales are asked for long before; within a step the
next product begins where one was added, while the other runs.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from kernels.device.hopper_rings import ROWS, Cursor
from kernels.matmul.common.product import BLOCK
from kernels.matmul.hopper.store import store

from .tile import BUFFERS, LAYOUT, WIDTH, multiply, scales_of_tensors

BLOCKS = gl.constexpr(4)  # of K a step
# A scale of B's for each of 4 warps and 8 places of a warp: a thread's two rows share it.
ONE_OF_TWO = gl.constexpr(
    gl.DistributedLinearLayout(
        [[0, 1, 0]],
        [[0, 0, 0], [0, 0, 0], [0, 0, 1], [0, 0, 2], [0, 0, 4]],
        [[1, 0, 0], [2, 0, 0]],
        [],
        [4, 2, 8],
    )
)


@gluon.jit
def _place(a_scale, b_scale, row, column, problem, stride_am, stride_bn, A_SCALE: gl.constexpr, B_SCALE: gl.constexpr):  # fmt: skip  # noqa: E501
    """Where the scales of a tile's first block of K are: A's of each row, B's for each thread."""
    p_a = gl.to_tensor(0)
    p_b = gl.to_tensor(0)
    if A_SCALE == "blocks":
        # Rows beyond the last are not written: they take its scale, not a mask in each step.
        o_m = row + gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))
        p_a = a_scale + min(o_m, problem.M - 1) * stride_am
    if B_SCALE == "blocks":
        # One for all, but asked for by each thread: what a warp shares is copied to a register of
        # the warp at the loop's end, which waits for it. So the address is of a thread's row: one
        # beyond the last takes the first scale, since it is not written.
        SPREAD: gl.constexpr = gl.SliceLayout(1, ONE_OF_TWO)
        place = gl.arange(0, 8, gl.SliceLayout(0, SPREAD))[None, :]
        place += 16 * gl.arange(0, 4, gl.SliceLayout(1, SPREAD))[:, None]
        p_b = b_scale + gl.where(row + place < problem.M, column // BLOCK * stride_bn, 0)
    return p_a, p_b


@gluon.jit
def _ask(p_a, p_b, wanted, A_SCALE: gl.constexpr, B_SCALE: gl.constexpr):
    """Ask for the scales of a block of K at these places, unspecified unless ``wanted``."""
    of_a = 1.0
    of_b = 1.0
    if A_SCALE == "blocks":
        of_a = gl.load(p_a, mask=gl.full([ROWS], wanted, gl.int1, gl.SliceLayout(1, LAYOUT)))
    if B_SCALE == "blocks":
        of_b = gl.load(p_b, mask=gl.full([4, 8], wanted, gl.int1, gl.SliceLayout(1, ONE_OF_TWO)))
    return of_a, of_b


@gluon.jit
def _ask_two(p_a, p_b, first, second, stride_ak, stride_bk, A_SCALE: gl.constexpr, B_SCALE: gl.constexpr):  # fmt: skip  # noqa: E501
    """Ask for the scales of two blocks of K, each if wanted, and step over them."""
    even = _ask(p_a, p_b, first, A_SCALE, B_SCALE)
    if A_SCALE == "blocks":
        p_a += stride_ak
    if B_SCALE == "blocks":
        p_b += stride_bk
    odd = _ask(p_a, p_b, second, A_SCALE, B_SCALE)
    if A_SCALE == "blocks":
        p_a += stride_ak
    if B_SCALE == "blocks":
        p_b += stride_bk
    return even, odd, p_a, p_b


@gluon.jit
def _of_rows(of_b):
    """B's scale for each row."""
    of_b = of_b.expand_dims(1).broadcast_to([4, 2, 8]).reshape([ROWS])
    return gl.convert_layout(of_b, gl.SliceLayout(1, LAYOUT), assert_trivial=True)


@gluon.jit
def _multiplied(scales, A_SCALE: gl.constexpr, B_SCALE: gl.constexpr):
    """What each row of a product of one block of K is scaled by."""
    if A_SCALE == "blocks":
        if B_SCALE == "blocks":
            return scales[0] * _of_rows(scales[1])
        else:
            return scales[0]
    else:
        return _of_rows(scales[1])


@gluon.jit
def _scaled(part, scales, A_SCALE: gl.constexpr, B_SCALE: gl.constexpr):
    return part * _multiplied(scales, A_SCALE, B_SCALE)[:, None]


@gluon.jit
def _multiply_into(a, b, part):
    """Start a product in the registers of ``part``, which was added: others there are not."""
    return warpgroup_mma(a, b.permute((1, 0)), part, use_acc=False, is_async=True)


@gluon.jit
def _add_step(acc, even, odd, p_a, p_b, first_wanted, second_wanted, more, stride_ak, stride_bk, ring, at, i_next, problem, a_scale, b_scale, stride_am, stride_bn, BLOCKS: gl.constexpr, IS_END: gl.constexpr, I_CONSUMER: gl.constexpr, CONSUMERS: gl.constexpr, EARLY: gl.constexpr, A_SCALE: gl.constexpr, B_SCALE: gl.constexpr):  # fmt: skip  # noqa: E501
    """Add BLOCKS blocks of K, an even number. While each but the last is added the next one's
    product is on its way: two begin together, and others where one was added. Unrolled: around a
    loop's end the assembler serialises products (advisory C7514).

    If EARLY the first one's stage was waited for, and the next one's is if there are ``more``. The
    scales of two blocks more are asked for: if IS_END those of the next tile, whose row and column
    are returned."""
    row = 0
    column = 0
    part = gl.zeros([ROWS, WIDTH], gl.float32, LAYOUT)
    if not EARLY:
        mbarrier.wait(ring.full.index(at.stage), at.phase)
    first = at.stage
    pending = multiply(ring.a.index(first * CONSUMERS + I_CONSUMER), ring.b.index(first), 0)
    at = at.next()
    for i in gl.static_range(BLOCKS // 2):
        second = at.stage
        mbarrier.wait(ring.full.index(second), at.phase)
        if i > 0:
            part, acc = warpgroup_mma_wait(1, deps=[part, acc])
        behind = _multiply_into(ring.a.index(second * CONSUMERS + I_CONSUMER), ring.b.index(second), part)  # fmt: skip  # noqa: E501
        at = at.next()
        # A branch: the assembler puts what divides between the parts of a product else.
        if IS_END and i == BLOCKS // 2 - 1:  # noqa: SIM102
            if more:
                row, column = problem.tile(i_next)
                row += I_CONSUMER * ROWS
                p_a, p_b = _place(a_scale, b_scale, row, column, problem, stride_am, stride_bn, A_SCALE, B_SCALE)  # fmt: skip  # noqa: E501
        # The compiler moves sums behind these, where nothing runs beside them, unless told that
        # they are of them. Where fp32 leaves the assembler still does.
        if i == 0:
            part = warpgroup_mma_wait(1, deps=[pending])
        else:
            part, acc = warpgroup_mma_wait(1, deps=[pending, acc])
        mbarrier.arrive(ring.empty.index(first))
        acc = acc + _scaled(part, even, A_SCALE, B_SCALE)
        of_odd = _multiplied(odd, A_SCALE, B_SCALE)
        if i < BLOCKS // 2 - 1:
            even, odd, p_a, p_b = _ask_two(p_a, p_b, True, True, stride_ak, stride_bk, A_SCALE, B_SCALE)  # fmt: skip  # noqa: E501
            first = at.stage
            mbarrier.wait(ring.full.index(first), at.phase)
            # Nothing is waited for: what is added is, before the next product begins there.
            part, acc, of_odd = warpgroup_mma_wait(1, deps=[part, acc, of_odd])
            pending = _multiply_into(ring.a.index(first * CONSUMERS + I_CONSUMER), ring.b.index(first), part)  # fmt: skip  # noqa: E501
            at = at.next()
            part, acc, of_odd = warpgroup_mma_wait(1, deps=[behind, acc, of_odd])
        else:
            even, odd, p_a, p_b = _ask_two(p_a, p_b, first_wanted, second_wanted, stride_ak, stride_bk, A_SCALE, B_SCALE)  # fmt: skip  # noqa: E501
            if EARLY:
                mbarrier.wait(ring.full.index(at.stage), at.phase, pred=more)
            part, acc, of_odd = warpgroup_mma_wait(0, deps=[behind, acc, of_odd])
        mbarrier.arrive(ring.empty.index(second))
        acc = acc + part * of_odd[:, None]
    return acc, at, even, odd, p_a, p_b, row, column


@gluon.jit
def _add_one(acc, scales, ring, at, more, I_CONSUMER: gl.constexpr, CONSUMERS: gl.constexpr, EARLY: gl.constexpr, A_SCALE: gl.constexpr, B_SCALE: gl.constexpr):  # fmt: skip  # noqa: E501
    """As ``_add_step`` the last of an odd number of blocks."""
    if not EARLY:
        mbarrier.wait(ring.full.index(at.stage), at.phase)
    used = at.stage
    pending = multiply(ring.a.index(used * CONSUMERS + I_CONSUMER), ring.b.index(used), 0)
    at = at.next()
    if EARLY:
        mbarrier.wait(ring.full.index(at.stage), at.phase, pred=more)
    part = warpgroup_mma_wait(0, deps=[pending])
    mbarrier.arrive(ring.empty.index(used))
    return acc + _scaled(part, scales, A_SCALE, B_SCALE), at


@gluon.jit
def consume_pairs(c, a_scale, b_scale, bias, ring, c_staging, problem, I_CONSUMER: gl.constexpr, stride_am, stride_ak, stride_bk, stride_bn, A_SCALE: gl.constexpr, B_SCALE: gl.constexpr, ACTIVATION: gl.constexpr):  # fmt: skip  # noqa: E501
    """BLOCKS blocks of K a step, the scales of each two asked for two ahead, those of a tile's
    first two before the last tile is written."""
    STEP: gl.constexpr = problem.BLOCK_K
    CONSUMERS: gl.constexpr = problem.CONSUMERS
    EARLY: gl.constexpr = c.dtype.primitive_bitwidth == 16
    K = problem.K
    at = Cursor(gl.to_tensor(0), gl.to_tensor(0), ring.STAGES)
    n_tiles = problem.tiles()
    of_a, of_b = scales_of_tensors(a_scale, b_scale, A_SCALE, B_SCALE)
    row, column = problem.tile(gl.program_id(0))
    row += I_CONSUMER * ROWS
    p_a, p_b = _place(a_scale, b_scale, row, column, problem, stride_am, stride_bn, A_SCALE, B_SCALE)  # fmt: skip  # noqa: E501
    even, odd, p_a, p_b = _ask_two(p_a, p_b, True, STEP < K, stride_ak, stride_bk, A_SCALE, B_SCALE)
    if EARLY:
        mbarrier.wait(ring.full.index(at.stage), at.phase)  # no program is without a tile
    for i_tile in range(gl.program_id(0), n_tiles, gl.num_programs(0)):
        is_last = i_tile + gl.num_programs(0) >= n_tiles
        x = gl.zeros([ROWS, WIDTH], gl.float32, LAYOUT)
        # Behind the last tile any: a group of tiles that is none has no rows to divide by.
        i_next = gl.where(is_last, 0, i_tile + gl.num_programs(0))
        blocks = gl.cdiv(K, STEP)
        many = (blocks - 1) // BLOCKS * (BLOCKS * STEP)
        for k in range(0, many, BLOCKS * STEP):
            ahead = k + BLOCKS * STEP
            x, at, even, odd, p_a, p_b, _, _ = _add_step(x, even, odd, p_a, p_b, True, ahead + STEP < K, True, stride_ak, stride_bk, ring, at, i_next, problem, a_scale, b_scale, stride_am, stride_bn, BLOCKS, False, I_CONSUMER, CONSUMERS, EARLY, A_SCALE, B_SCALE)  # fmt: skip  # noqa: E501
        # A tile's last whole step is code of its own: the next tile's scales are asked for beside
        # its products, not behind them.
        if many + (BLOCKS - 1) * STEP < K:
            x, at, even, odd, p_a, p_b, next_row, next_column = _add_step(x, even, odd, p_a, p_b, not is_last, not is_last, not is_last, stride_ak, stride_bk, ring, at, i_next, problem, a_scale, b_scale, stride_am, stride_bn, BLOCKS, True, I_CONSUMER, CONSUMERS, EARLY, A_SCALE, B_SCALE)  # fmt: skip  # noqa: E501
        else:
            if many + STEP < K:
                ahead = many + 2 * STEP
                more = (ahead < K) | (not is_last)
                x, at, even, odd, p_a, p_b, _, _ = _add_step(x, even, odd, p_a, p_b, ahead < K, False, more, stride_ak, stride_bk, ring, at, i_next, problem, a_scale, b_scale, stride_am, stride_bn, 2, False, I_CONSUMER, CONSUMERS, EARLY, A_SCALE, B_SCALE)  # fmt: skip  # noqa: E501
            if blocks % 2 == 1:
                x, at = _add_one(x, even, ring, at, not is_last, I_CONSUMER, CONSUMERS, EARLY, A_SCALE, B_SCALE)  # fmt: skip  # noqa: E501
            next_row, next_column = problem.tile(i_next)
            next_row += I_CONSUMER * ROWS
            p_a, p_b = _place(a_scale, b_scale, next_row, next_column, problem, stride_am, stride_bn, A_SCALE, B_SCALE)  # fmt: skip  # noqa: E501
            even, odd, p_a, p_b = _ask_two(p_a, p_b, not is_last, (STEP < K) & (not is_last), stride_ak, stride_bk, A_SCALE, B_SCALE)  # fmt: skip  # noqa: E501
        if A_SCALE == "outer":
            o_m = row + gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))
            x *= gl.load(a_scale + o_m * stride_am, mask=o_m < problem.M, other=0.0)[:, None]
        elif A_SCALE == "tensor":
            x *= of_a
        if B_SCALE == "tensor":
            x *= of_b
        elif B_SCALE == "outer":
            o_n = column + gl.arange(0, WIDTH, gl.SliceLayout(0, LAYOUT))
            x *= gl.load(b_scale + o_n * stride_bn, mask=o_n < problem.N, other=0.0)[None, :]
        store(c, c_staging, bias, (row,), column, x, problem.N, ACTIVATION, I_CONSUMER * BUFFERS, TURNS=BUFFERS)  # fmt: skip  # noqa: E501
        row = next_row
        column = next_column
    tma.store_wait(0)
