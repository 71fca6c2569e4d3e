"""The attention forward pass of Hopper GPUs in Gluon: a producer warp, consumer warpgroups.

A program owns one multiprocessor and walks blocks of query rows. Its producer warp brings Q and
rings of K and V blocks through the bulk copy engine (TMA); every consumer warpgroup owns 64 rows.
Within a warpgroup the scores of one block are multiplied beside the values of the block before;
between warpgroups a turn goes round, so that one multiplies while another exponentiates.
docs/kernels/hopper/forward.md explains the design. portable/forward/kernel.py computes the same
and is its twin in tests.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    tma,
    warpgroup_mma_wait,
)

from kernels.attention.common.numerics.constants import TO_BASE_E
from kernels.attention.common.numerics.heavy_rows import HEAVY, marked
from kernels.attention.hopper.copies import Memory, ask_first, produce
from kernels.attention.hopper.forward.softmax import mask, softmax_step
from kernels.attention.hopper.problem import Problem
from kernels.attention.hopper.products import (
    leave,
    no_output,
    scores,
    times,
    values,
    wait_for_values,
)
from kernels.attention.hopper.tile_order import SIZES
from kernels.attention.hopper.weight_pairs import pack
from kernels.device.hopper_rings import ROWS, meet, new_ring, pass_over, specialise


@gluon.jit
def _turn(OPERATION: gl.constexpr, I_CONSUMER: gl.constexpr, CONSUMERS: gl.constexpr):
    """Wait for the turn of a consumer to start matrix work (sync), or give it one (arrive)."""
    meet(OPERATION, I_CONSUMER % CONSUMERS)


@gluon.jit
def _steps(
    acc, p, maximum, total, q, k_ring, v_ring, k_at, v_at, first, end, n_blocks, row, own,
    problem, I_CONSUMER: gl.constexpr, MASKED: gl.constexpr, LEFT_ALONE: gl.constexpr = False,
):  # fmt: skip
    """Blocks [first, end) of a tile: scores of this block beside values of the one before."""
    for i in range(first, end):
        k_ring.wait(k_at)
        if problem.IN_TURNS:
            _turn("sync", I_CONSUMER, problem.CONSUMERS)
        s = scores(q, k_ring, k_at, problem, problem.REST)
        v_ring.wait(v_at)
        acc = values(p, v_ring, v_at, acc, problem)
        if problem.IN_TURNS:
            _turn("arrive", I_CONSUMER + 1, problem.CONSUMERS)
        s = warpgroup_mma_wait(2 if problem.SPLIT else 1, deps=[s])  # not for the values
        k_ring.release(k_at.stage)
        k_at = k_at.next()
        if MASKED:
            s = mask(s, row, n_blocks - 1 - i, own, problem, LEFT_ALONE)
        b_p, maximum, total, factor = softmax_step(s, maximum, total, problem.scale_log2, MASKED)
        acc = wait_for_values(acc, problem)
        v_ring.release(v_at.stage)
        v_at = v_at.next()
        acc = times(acc, factor, problem)
        p = pack(b_p, k_ring.memory.dtype)
    return acc, p, maximum, total, k_at, v_at


@gluon.jit
def _first_step(
    q, k_ring, k_at, n_blocks, row, own, problem, I_CONSUMER: gl.constexpr, S_ROWS: gl.constexpr
):
    """Weights, maximum and sum of the first block that a tile walks."""
    k_ring.wait(k_at)
    if problem.IN_TURNS:
        _turn("sync", I_CONSUMER, problem.CONSUMERS)
    s = scores(q, k_ring, k_at, problem, problem.REST)
    if problem.IN_TURNS:
        _turn("arrive", I_CONSUMER + 1, problem.CONSUMERS)
    s = warpgroup_mma_wait(0, deps=[s])
    k_ring.release(k_at.stage)
    k_at = k_at.next()
    if not problem.EVEN:
        s = mask(s, row, n_blocks - 1, own, problem, False)
    maximum = gl.full([ROWS], float("-inf"), gl.float32, S_ROWS)
    total = gl.zeros([ROWS], gl.float32, S_ROWS)
    b_p, maximum, total, _ = softmax_step(s, maximum, total, problem.scale_log2, not problem.EVEN)
    return pack(b_p, k_ring.memory.dtype), maximum, total, k_at


@gluon.jit
def _store_lse(
    lse, rows, maximum, total, empty, row, i_h, own, problem, HELD: gl.constexpr,
    S_ROWS: gl.constexpr,
):  # fmt: skip
    """Log-sum-exps, and the same with marks, to where either goes."""
    b_lse = (maximum * problem.scale_log2 + gl.log2(total)) * TO_BASE_E
    b_lse = gl.where(empty, float("-inf"), b_lse)
    # The weights of a score of +inf are NaN, the formula's log-sum-exp is +inf. All others are not
    # below their maximum, of which ptxas makes a faster loop.
    if HELD:
        b_lse = gl.maximum(b_lse, maximum * problem.scale_log2 * TO_BASE_E)
    else:
        b_lse = gl.where(maximum == float("inf"), float("inf"), b_lse)
    o_m = row + gl.arange(0, ROWS, S_ROWS)
    in_m = o_m < own.seqlen_q
    if lse is not None:
        gl.store(lse + problem.first_lse(own, i_h) + o_m, b_lse, mask=in_m)
    if rows is not None:
        b_lse = marked(b_lse, total < 1.0 / HEAVY)
        gl.store(rows + problem.first_lse(own, i_h) + o_m, b_lse, mask=in_m)


@gluon.jit
def _send(out, staging, row, i_h, own, problem):
    """Copy the output of a consumer's rows to global memory."""
    if problem.TAILS:
        # Rows after the tile's are another tile's.
        if row < own.seqlen_q:
            tma.async_copy_shared_to_global(out, own.q_box(i_h, row), staging)
    else:
        tma.async_copy_shared_to_global(out, own.q_box(i_h, row), staging)


@gluon.jit
def _consume(out, lse, rows, tiles, memory, problem, AHEAD: gl.constexpr, I_CONSUMER: gl.constexpr):
    q_ring = memory.q
    k_ring = memory.k
    v_ring = memory.v
    IN_TURNS: gl.constexpr = problem.IN_TURNS
    OUT_IN_Q: gl.constexpr = problem.OUT_IN_Q
    HEAD_DIM: gl.constexpr = problem.HEAD_DIM
    CONSUMERS: gl.constexpr = problem.CONSUMERS
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, problem.BLOCK_N, 16])
    S_ROWS: gl.constexpr = gl.SliceLayout(1, S_LAYOUT)
    # Q in registers, where that was timed: products read less. Three consumers have no room for it.
    TIMED: gl.constexpr = problem.EVEN or (problem.CAUSAL and not problem.PAIRS)
    HELD: gl.constexpr = HEAD_DIM <= 64 and problem.REST == 0 and CONSUMERS < 3 and TIMED
    q_at = q_ring.first_to_use()
    for _ in gl.static_range(I_CONSUMER):
        q_at = q_at.next()
    k_at = k_ring.first_to_use()
    v_at = v_ring.first_to_use()
    if IN_TURNS and I_CONSUMER == CONSUMERS - 1:
        _turn("arrive", 0, CONSUMERS)  # consumer 0 has the first turn
    if AHEAD:
        first_row, i_h, own, exists = problem.tile(0, tiles)[:4]
    for i_turn in range(problem.turns(tiles)):
        if not AHEAD:
            first_row, i_h, own, exists = problem.tile(i_turn, tiles)[:4]
        if exists:
            row = first_row + I_CONSUMER * ROWS
            n_loaded, _ = problem.blocks(own, first_row, problem.BLOCK_M)
            n_blocks, n_whole = (
                problem.blocks(own, row, ROWS)
                if problem.SKIP
                else problem.blocks(own, first_row, problem.BLOCK_M)
            )
            i_first, i_uncut = problem.left_blocks(own, first_row, n_blocks, problem.BLOCK_M)
            # Blocks that only the rows of later consumers see.
            if problem.SKIP:
                FOLLOWING: gl.constexpr = (I_CONSUMER + 1) % CONSUMERS if IN_TURNS else None
                n = n_loaded - n_blocks
                k_at, v_at = pass_over(k_ring, v_ring, k_at, v_at, n, I_CONSUMER, FOLLOWING)

            q_ring.wait(q_at)
            q = q_ring.memory.index(q_at.stage).reshape([ROWS, HEAD_DIM])
            if HELD:
                q = q.load(gl.DotOperandLayout(0, S_LAYOUT, 2))
            p, maximum, total, k_at = _first_step(
                q, k_ring, k_at, n_blocks, row, own, problem, I_CONSUMER, S_ROWS
            )
            acc = no_output(problem)

            # The masked blocks, then those that every row sees in full, then those a window cuts.
            n_masked = max(1, n_blocks - n_whole)
            if problem.WINDOW:
                n_masked = min(n_masked, n_blocks - i_first)
            if not (problem.EVEN or problem.ONE):
                acc, p, maximum, total, k_at, v_at = _steps(
                    acc, p, maximum, total, q, k_ring, v_ring, k_at, v_at, 1, n_masked, n_blocks,
                    row, own, problem, I_CONSUMER, True,
                )  # fmt: skip
            n_uncut = max(n_masked, n_blocks - i_uncut) if problem.WINDOW else n_blocks
            if not problem.ONE:
                acc, p, maximum, total, k_at, v_at = _steps(
                    acc, p, maximum, total, q, k_ring, v_ring, k_at, v_at, n_masked, n_uncut,
                    n_blocks, row, own, problem, I_CONSUMER, False,
                )  # fmt: skip
            if problem.WINDOW:
                acc, p, maximum, total, k_at, v_at = _steps(
                    acc, p, maximum, total, q, k_ring, v_ring, k_at, v_at, n_uncut,
                    n_blocks - i_first, n_blocks, row, own, problem, I_CONSUMER, True, True,
                )  # fmt: skip
            if not OUT_IN_Q:
                q_ring.release(q_at.stage)

            v_ring.wait(v_at)
            acc = values(p, v_ring, v_at, acc, problem)
            # Where the next rows are takes divisions: they are done while values are multiplied.
            if AHEAD:
                next_row, next_h, next_own, next_exists = problem.tile(i_turn + 1, tiles)[:4]
            # A row that saw no key: its output is 0 and its log-sum-exp -inf.
            empty = total == 0.0
            _store_lse(lse, rows, maximum, total, empty, row, i_h, own, problem, HELD, S_ROWS)
            inverse = 1.0 / gl.where(empty, 1.0, total)
            acc = wait_for_values(acc, problem)
            v_ring.release(v_at.stage)
            v_at = v_at.next()
            staging = q_ring.memory.index(q_at.stage) if OUT_IN_Q else memory.out.index(I_CONSUMER)
            tma.store_wait(0)
            leave(staging, times(acc, inverse, problem), problem)
            fence_async_shared()
            _send(out, staging, row, i_h, own, problem)
            if OUT_IN_Q:
                tma.store_wait(0)
                q_ring.release(q_at.stage)
            for _ in gl.static_range(CONSUMERS):
                q_at = q_at.next()
            if AHEAD:
                first_row, i_h, own, exists = next_row, next_h, next_own, next_exists
        elif AHEAD:
            first_row, i_h, own, exists = problem.tile(i_turn + 1, tiles)[:4]
    if IN_TURNS and I_CONSUMER == 0:
        _turn("sync", 0, CONSUMERS)  # takes the turn nobody waits for
    tma.store_wait(0)


@gluon.jit(do_not_specialize=SIZES)
def attention_forward_hopper(
    q,
    k,
    v,
    out,
    lse,
    rows,
    tiles,
    heads,
    heads_per_kv,
    batch,
    seqlen_q,
    seqlen_k,
    causal_offset,
    left_offset,
    heads_together,
    whole_each,
    whole_more,
    tail,
    scale_log2,
    CONSUMERS: gl.constexpr,
    BLOCK_N: gl.constexpr,
    HEAD_DIM: gl.constexpr,
    REST: gl.constexpr,
    SPLIT: gl.constexpr,
    STAGES: gl.constexpr,
    CAUSAL: gl.constexpr,
    PAIRS: gl.constexpr,
    LAST_ALONE: gl.constexpr,
    IN_TURNS: gl.constexpr,
    OUT_IN_Q: gl.constexpr,
    Q_STAGES: gl.constexpr,
    SKIP: gl.constexpr,
    TAILS: gl.constexpr,
    EVEN: gl.constexpr,
    ONE: gl.constexpr,
    ONCE: gl.constexpr,
    AHEAD: gl.constexpr,
):
    """Row i sees key j when j < seqlen_k, with CAUSAL j <= i + causal_offset, and j >= i +
    left_offset unless that is None.

    q, k, v, out: (batch, heads, seqlen, head_dim) as descriptors of one head's boxes.
    lse, rows: fp32 (batch, heads, seqlen_q), the second with marks (common/numerics/heavy_rows.py);
    either may be None. ``tiles`` is None, or lists those of packed sequences
    (hopper/packed/tiles.py): q, k, v and out are then ragged descriptors, both offsets count from
    each one's bottom-right corner, seqlen_q is the sum of all, lse (heads, seqlen_q), and batch and
    seqlen_k are not used.
    """
    problem = Problem(
        heads, heads_per_kv, batch, seqlen_q, seqlen_k, causal_offset,
        causal_offset if left_offset is None else left_offset,
        heads_together, whole_each, whole_more, tail, scale_log2,
        CONSUMERS, BLOCK_N, HEAD_DIM, REST, SPLIT, CAUSAL, PAIRS, LAST_ALONE, IN_TURNS, OUT_IN_Q,
        SKIP, tiles is not None, left_offset is not None, TAILS, EVEN, ONE, ONCE,
        False, False, 0,
    )  # fmt: skip
    k_ring = new_ring(k, STAGES, CONSUMERS)
    v_ring = new_ring(v, STAGES, CONSUMERS)
    if OUT_IN_Q:
        q_ring = new_ring(q, CONSUMERS, 1)
        staging = q_ring.memory
    else:
        q_ring = new_ring(q, Q_STAGES * CONSUMERS, 1)
        shape: gl.constexpr = [CONSUMERS] + out.block_shape  # noqa: RUF005
        staging = gl.allocate_shared_memory(out.dtype, shape, out.layout)
    memory = Memory(q_ring, k_ring, v_ring, staging)
    fence_async_shared()
    if ONCE:
        ask_first(q, k, tiles, memory, problem)

    # Constexprs survive only in tuples written in place.
    specialise(
        _consume, (out, lse, rows, tiles, memory, problem, AHEAD),
        produce, (q, k, v, tiles, memory, problem), CONSUMERS,
    )  # fmt: skip
