"""The gradient of queries on Hopper GPUs where sequences are short, in Gluon.

A program stays on its multiprocessor and walks tiles of 128 queries, 64 a consumer warpgroup, and
the keys they see, 64 at a step. The steps of all tiles are one loop: Q and dO of the next tile come
while this one is walked, and its first scores are multiplied beside the last step of this one.

Aggregates read their annotations when they are built, so nothing here postpones them.
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

from kernels.attention.common.numerics.constants import TO_BASE_2
from kernels.attention.common.numerics.heavy_rows import is_marked
from kernels.attention.hopper.backward.block import keys, keys_before
from kernels.attention.hopper.backward.wide.query_grads import gradients
from kernels.attention.hopper.tile_order import SIZES
from kernels.device.aggregates import aggregate
from kernels.device.hopper_rings import (
    ROWS,
    Cursor,
    Ring,
    barriers,
    new_ring,
    partition_barrier,
    pass_over,
    specialise,
)

from .plan import Plan, copy_tile, matrix, scores

AHEAD = gl.constexpr(1)  # the step of a tile at which the next one's rows are asked for


@aggregate
class Memory:
    """Rings of K and V; two tiles of Q and of dO, (4, 1, 1, 64, HEAD_DIM), announced by a barrier
    each and given back by a third."""

    q: gl.shared_memory_descriptor
    dout: gl.shared_memory_descriptor
    q_full: gl.shared_memory_descriptor
    dout_full: gl.shared_memory_descriptor
    q_empty: gl.shared_memory_descriptor
    k: Ring
    v: Ring


@aggregate
class Output:
    """The forward pass's, rows contiguous."""

    p: gl.tensor
    stride_b: gl.tensor
    stride_s: gl.tensor
    stride_h: gl.tensor
    HEAD_DIM: gl.constexpr

    @gluon.jit
    def at(self, tile):
        """Where the first row of the tile's head is."""
        i_b, i_h = tile.i_b.to(gl.int64), tile.i_h.to(gl.int64)
        return self.p + i_b * self.stride_b + i_h * self.stride_h


@gluon.jit
def _copy_queries(q, dout, tile, q_at, memory, plan):
    """Start to bring Q and dO of a tile."""
    mbarrier.wait(memory.q_empty.index(q_at.stage), q_at.phase)
    at_q = (tile.i_b, tile.i_h, tile.i)
    copy_tile(q, at_q, memory.q_full.index(q_at.stage), memory.q, q_at.stage, plan)
    copy_tile(dout, at_q, memory.dout_full.index(q_at.stage), memory.dout, q_at.stage, plan)


@gluon.jit
def _produce(q, k, v, dout, memory, plan):
    plan = plan.sizes_anew()
    BYTES: gl.constexpr = ROWS * plan.HEAD_DIM * 2
    k_at = memory.k.first_to_fill()
    v_at = memory.v.first_to_fill()
    q_at = Cursor(gl.to_tensor(0), gl.to_tensor(1), 2)
    _copy_queries(q, dout, plan.tile(0), q_at, memory, plan)
    q_at = q_at.next()
    for i_turn in range(plan.turns()):
        if plan.exists(i_turn):
            tile = plan.tile(i_turn)
            for i in range(tile.blocks):
                at_k = [tile.i_b, tile.i_kv, (tile.first + i) * ROWS, 0]
                k_at = memory.k.fill(k_at, k, at_k, BYTES)
                v_at = memory.v.fill(v_at, v, at_k, BYTES)
                if (i == gl.minimum(AHEAD, tile.blocks - 1)) & plan.exists(i_turn + 1):
                    following = plan.tile(i_turn + 1)
                    _copy_queries(q, dout, following, q_at, memory, plan)
            q_at = q_at.next()


@gluon.jit
def _log_sum_exps(lse, tile, row, plan, LAYOUT: gl.constexpr):
    """In base 2; +inf where a row sees no key and past the end: its weights are 0; NaN for +inf."""
    o_m = row + gl.arange(0, ROWS, LAYOUT)
    at = (tile.i_b * plan.heads + tile.i_h).to(gl.int64) * plan.seqlen_q
    x = gl.load(lse + at + o_m, mask=o_m < plan.seqlen_q, other=float("-inf"))
    spoilt = gl.where(x == float("inf"), float("nan"), x * TO_BASE_2)
    return gl.where(x == float("-inf"), float("inf"), spoilt)


@gluon.jit
def _deltas(
    out, lse, dlse, tile, row, stage, memory, plan,
    LAYOUT: gl.constexpr, I_CONSUMER: gl.constexpr, MARKED: gl.constexpr,
):  # fmt: skip
    """Sums of output times dO, less the log-sum-exps' gradients; with MARKED those sums are 0 of
    rows that lse marks (common/numerics/heavy_rows.py)."""
    COLUMNS: gl.constexpr = 64
    READ: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    o_m = row + gl.arange(0, ROWS, gl.SliceLayout(1, READ))
    o_d = gl.arange(0, COLUMNS, gl.SliceLayout(0, READ))
    p_out = out.at(tile) + o_m.to(gl.int64)[:, None] * out.stride_s + o_d[None, :]
    inside = (o_m < plan.seqlen_q)[:, None]
    dout = matrix(memory.dout, stage * 2 + I_CONSUMER)
    products = gl.zeros([ROWS, COLUMNS], gl.float32, READ)
    for j in gl.static_range(plan.HEAD_DIM // COLUMNS):
        known = inside & (o_d < out.HEAD_DIM - j * COLUMNS)[None, :]
        b_out = gl.load(p_out + j * COLUMNS, mask=known, other=0.0)
        b_dout = dout.slice(j * COLUMNS, COLUMNS, dim=1).load(READ)
        products += b_out.to(gl.float32) * b_dout.to(gl.float32)
    delta = gl.convert_layout(gl.sum(products, 1), LAYOUT)
    if dlse is not None:
        o_m = row + gl.arange(0, ROWS, LAYOUT)
        at = (tile.i_b * plan.heads + tile.i_h).to(gl.int64) * plan.seqlen_q
        if MARKED:
            b_lse = gl.load(lse + at + o_m, mask=o_m < plan.seqlen_q, other=0.0)
            delta = gl.where(is_marked(b_lse), 0.0, delta)
        delta -= gl.load(dlse + at + o_m, mask=o_m < plan.seqlen_q, other=0.0)
    return delta


@gluon.jit
def _expect(out, tile, row, plan):
    """Have 64 rows of the output brought to L2, a thread half a row."""
    thread = gl.arange(0, 2 * ROWS, gl.BlockedLayout([1], [32], [4], [0]))
    o_m = gl.minimum(row + thread // 2, plan.seqlen_q - 1).to(gl.int64)
    o_d = thread % 2 * gl.minimum(64, out.HEAD_DIM - 1)
    gl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.b32 $0, 0;",
        "=r,l",
        [out.at(tile) + o_m * out.stride_s + o_d],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )


@gluon.jit
def _write_rows(rows, b_lse, delta, tile, row, plan, LAYOUT: gl.constexpr):
    """What the gradients of keys and values need of each row."""
    o_m = row + gl.arange(0, ROWS, LAYOUT)
    inside = o_m < plan.padded_q()
    to = rows + plan.row(tile, tile.i_h, 0) + o_m
    gl.store(to, b_lse, mask=inside)
    gl.store(to + plan.batch * plan.heads * plan.padded_q(), delta, mask=inside)


@gluon.jit
def _consume(
    dq, out, lse, dlse, rows, memory, plan, scale, scale_log2,
    MARKED: gl.constexpr, I_CONSUMER: gl.constexpr,
):  # fmt: skip
    HEAD_DIM: gl.constexpr = plan.HEAD_DIM
    # The first warpgroup's rows see a block of keys less.
    PASSES: gl.constexpr = plan.CAUSAL and I_CONSUMER == 0
    # Those of the second one begin a block later in a window.
    PASSES_FIRST: gl.constexpr = plan.WINDOW and I_CONSUMER == 1
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, ROWS, 16])
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    LEFT: gl.constexpr = gl.DotOperandLayout(0, LAYOUT, 2)
    k_ring = memory.k
    v_ring = memory.v
    plan = plan.sizes_anew()
    total = plan.steps(I_CONSUMER)
    k_at = k_ring.first_to_use()
    v_at = v_ring.first_to_use()
    i_turn = gl.to_tensor(0)
    i = gl.to_tensor(0)
    tile = plan.tile(0)
    row = (tile.i * 2 + I_CONSUMER) * ROWS
    before = keys_before(plan, row)
    blocks = keys(plan, row) - before
    if PASSES_FIRST:
        k_at, v_at = pass_over(k_ring, v_ring, k_at, v_at, before - keys_before(plan, row - ROWS))
    acc = gl.zeros([ROWS, HEAD_DIM], gl.float32, LAYOUT)
    mbarrier.wait(memory.q_full.index(0), 0)
    k_ring.wait(k_at)
    b_k = matrix(k_ring.memory, k_at.stage if PASSES_FIRST else 0)
    b_v = matrix(v_ring.memory, v_at.stage if PASSES_FIRST else 0)
    s = scores(matrix(memory.q, I_CONSUMER), b_k, S_LAYOUT)
    R: gl.constexpr = gl.SliceLayout(1, S_LAYOUT)
    b_lse = _log_sum_exps(lse, tile, row, plan, R)
    mbarrier.wait(memory.dout_full.index(0), 0)
    v_ring.wait(v_at)
    dp = scores(matrix(memory.dout, I_CONSUMER), b_v, S_LAYOUT)
    s, dp = warpgroup_mma_wait(0, deps=[s, dp])
    v_ring.release(v_at.stage)
    v_at = v_at.next()
    delta = _deltas(out, lse, dlse, tile, row, 0, memory, plan, R, I_CONSUMER, MARKED)
    _write_rows(rows, b_lse, delta, tile, row, plan, R)
    for j in range(total):
        more = j + 1 < total
        last = i + 1 == blocks
        i_tile = i_turn % 2 * 2 + I_CONSUMER
        i_block = before + i if plan.WINDOW else i
        left = gradients(s, dp, b_lse, delta, row, i_block, plan, scale_log2, LEFT)
        b_k = matrix(k_ring.memory, k_at.stage)
        acc = warpgroup_mma(left, b_k, acc, use_acc=i > 0, is_async=True)
        if (i == 0) & plan.exists(i_turn + 1):
            upcoming = plan.tile(i_turn + 1)
            _expect(out, upcoming, (upcoming.i * 2 + I_CONSUMER) * ROWS, plan)
        if (i == 0) & (i_turn > 0):
            # The gradient of the tile before was copied from where its queries had been.
            tma.store_wait(0)
            mbarrier.arrive(memory.q_empty.index((i_turn + 1) % 2))
        next_at = k_at.next()
        if PASSES:
            n = keys(plan, row + ROWS) - (before + blocks if plan.WINDOW else blocks)
            next_at, v_at = pass_over(k_ring, v_ring, next_at, v_at, gl.where(last & more, n, 0))
        if PASSES_FIRST:
            n = gl.to_tensor(0)
            if last & more:
                row_there = (plan.tile(i_turn + 1).i * 2 + I_CONSUMER) * ROWS
                n = keys_before(plan, row_there) - keys_before(plan, row_there - ROWS)
            next_at, v_at = pass_over(k_ring, v_ring, next_at, v_at, n)
        next_turn = gl.where(last, i_turn + 1, i_turn)
        stage = next_turn % 2
        phase = next_turn // 2 % 2
        i_next = stage * 2 + I_CONSUMER
        # After the last step there is no next block: its products are never used.
        mbarrier.wait(memory.dout_full.index(stage), phase, pred=more)
        mbarrier.wait(v_ring.full.index(v_at.stage), v_at.phase, pred=more)
        dp = scores(matrix(memory.dout, i_next), matrix(v_ring.memory, v_at.stage), S_LAYOUT)
        mbarrier.wait(memory.q_full.index(stage), phase, pred=more)
        mbarrier.wait(k_ring.full.index(next_at.stage), next_at.phase, pred=more)
        s = scores(matrix(memory.q, i_next), matrix(k_ring.memory, next_at.stage), S_LAYOUT)
        acc = warpgroup_mma_wait(2, deps=[acc])
        k_ring.release(k_at.stage)
        # Rows of the next tile are made ready beside the products that go on.
        next_row = row
        if last & more:
            following = plan.tile(i_turn + 1)
            next_row = (following.i * 2 + I_CONSUMER) * ROWS
            b_lse = _log_sum_exps(lse, following, next_row, plan, R)
            delta = _deltas(
                out, lse, dlse, following, next_row, stage, memory, plan, R, I_CONSUMER, MARKED
            )
            _write_rows(rows, b_lse, delta, following, next_row, plan, R)
        next_before = keys_before(plan, next_row)
        n = keys(plan, next_row) - next_before
        dp = warpgroup_mma_wait(1, deps=[dp])
        if plan.WINDOW:
            # After the last step that stage may still be what the other one passes over: filled
            # twice before it looks, it would wait for ever. Else that one's K holds the copy back.
            mbarrier.arrive(v_ring.empty.index(v_at.stage), pred=more)
        else:
            v_ring.release(v_at.stage)
        s = warpgroup_mma_wait(0, deps=[s])
        if last:
            to = matrix(memory.q, i_tile)
            to.store((acc * scale).to(plan.DTYPE))
            fence_async_shared()
            partition_barrier()
            tile = plan.tile(i_turn)
            at_q = [tile.i_b, tile.i_h, row, 0]
            tma.async_copy_shared_to_global(dq, at_q, memory.q.index(i_tile))
        k_at = next_at
        v_at = v_at.next()
        i = gl.where(last, 0, i + 1)
        i_turn = next_turn
        row = next_row
        if plan.WINDOW:
            before = next_before
        blocks = n
    tma.store_wait(0)


@gluon.jit(do_not_specialize=SIZES)
def attention_backward_hopper_short_q(
    q,
    k,
    v,
    dout,
    out,
    lse,
    dlse,
    rows,
    dq,
    out_strides,
    heads,
    kv_heads,
    batch,
    seqlen_q,
    seqlen_k,
    causal_offset,
    left_offset,
    scale,
    scale_log2,
    OUT_DIM: gl.constexpr,
    HEAD_DIM: gl.constexpr,
    STAGES: gl.constexpr,
    CAUSAL: gl.constexpr,
    MARKED: gl.constexpr,
    BY_HEAD: gl.constexpr,
):
    """Row i sees key j when j < seqlen_k, with CAUSAL j <= i + causal_offset, and j >= i +
    left_offset unless that is None, which wants CAUSAL.

    q, k, v, dout, dq: (batch, heads, seqlen, head_dim) as descriptors of one head's 64 rows.
    lse, dlse (or None): fp32 (batch, heads, seqlen_q). out: as q, rows contiguous.
    With MARKED dlse is portable/backward/heavy_rows.py's.
    rows: fp32 (2 * batch * heads * padded seqlen_q), written: log-sum-exps in base 2, deltas.
    """
    gdc_launch_dependents()
    plan = Plan(
        heads, kv_heads, batch, seqlen_q, seqlen_k, causal_offset,
        causal_offset if left_offset is None else left_offset,
        HEAD_DIM, CAUSAL, left_offset is not None, BY_HEAD, False, q.dtype,
    )  # fmt: skip
    # A stride of 1, which an axis of one element may have, is no tensor by itself.
    by_batch, by_row, by_head = out_strides
    made = Output(out, gl.to_tensor(by_batch), gl.to_tensor(by_row), gl.to_tensor(by_head), OUT_DIM)
    four: gl.constexpr = [4]
    memory = Memory(
        gl.allocate_shared_memory(q.dtype, four + q.block_shape, q.layout),
        gl.allocate_shared_memory(q.dtype, four + dout.block_shape, dout.layout),
        barriers(2, 1),
        barriers(2, 1),
        barriers(2, 2),
        new_ring(k, STAGES, 2),
        new_ring(v, STAGES, 2),
    )
    fence_async_shared()
    # Constexprs survive only in tuples written in place.
    specialise(
        _consume, (dq, made, lse, dlse, rows, memory, plan, scale, scale_log2, MARKED),
        _produce, (q, k, v, dout, memory, plan), 2, (232, 40),
    )  # fmt: skip
