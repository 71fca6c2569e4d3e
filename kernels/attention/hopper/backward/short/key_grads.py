"""The gradients of keys and values on Hopper GPUs where sequences are short, in Gluon.

A program stays on its multiprocessor and walks tiles of 128 keys. Each of two consumer warpgroups
owns 64 of them and waits for the other one nowhere: scores are transposed, keys by queries, so that
weights and their gradients are left operands in registers of what is added to dv and dk. The steps
of all tiles are one loop. Keys and values of the next tile come while this one is walked, and its
first scores are multiplied beside the last step of this one.

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
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.attention.hopper.tile_order import SIZES
from kernels.attention.hopper.weight_pairs import pack, times, unpack
from kernels.device.aggregates import aggregate
from kernels.device.hopper_rings import (
    ROWS,
    Cursor,
    Ring,
    barriers,
    new_ring,
    partition_barrier,
    specialise,
)

from .plan import Plan, copy_tile, matrix, scores


@aggregate
class Memory:
    """Rings of Q with the rows' log-sum-exps and of dO with their deltas; two tiles of K and of V,
    (4, 1, 1, 64, HEAD_DIM), each announced by a barrier and given back by another."""

    k: gl.shared_memory_descriptor
    v: gl.shared_memory_descriptor
    q: Ring
    dout: Ring
    lse: gl.shared_memory_descriptor
    delta: gl.shared_memory_descriptor
    k_full: gl.shared_memory_descriptor
    v_full: gl.shared_memory_descriptor
    kv_empty: gl.shared_memory_descriptor


@gluon.jit
def _produce(q, k, v, dout, rows, memory, plan):
    BYTES: gl.constexpr = ROWS * plan.HEAD_DIM * 2 + ROWS * 4
    plan = plan.sizes_anew()
    q_ring = memory.q
    dout_ring = memory.dout
    at = q_ring.first_to_fill()
    kv_at = Cursor(gl.to_tensor(1), gl.to_tensor(1), 2)
    group = plan.heads // plan.kv_heads
    all_rows = plan.batch * plan.heads * plan.padded_q()
    tile = plan.tile(0)
    at_kv = (tile.i_b, tile.i_kv, tile.i)
    copy_tile(k, at_kv, memory.k_full.index(0), memory.k, 0, plan)
    for i_turn in range(plan.turns()):
        if plan.exists(i_turn):
            following = tile
            i_h = tile.i_h
            i_m = tile.first
            steps = tile.blocks * group
            for i in range(steps):
                i_row = plan.row(tile, i_h, i_m)
                at_q = [tile.i_b, i_h, i_m * ROWS, 0]
                ready = q_ring.acquire(at, BYTES)
                tma.async_copy_global_to_shared(q, at_q, ready, q_ring.memory.index(at.stage))
                tma.async_copy_global_to_shared(rows, [i_row], ready, memory.lse.index(at.stage))
                if (i == 0) & (i_turn == 0):
                    at_kv = (tile.i_b, tile.i_kv, tile.i)
                    copy_tile(v, at_kv, memory.v_full.index(0), memory.v, 0, plan)
                ready = dout_ring.acquire(at, BYTES)
                to = dout_ring.memory.index(at.stage)
                tma.async_copy_global_to_shared(dout, at_q, ready, to)
                to = memory.delta.index(at.stage)
                tma.async_copy_global_to_shared(rows, [all_rows + i_row], ready, to)
                at = at.next()
                ended = i_m + 1 == tile.first + tile.blocks
                i_m = gl.where(ended, tile.first, i_m + 1)
                i_h = gl.where(ended, i_h + 1, i_h)
                if (i == gl.minimum(1, steps - 1)) & plan.exists(i_turn + 1):
                    stage = kv_at.stage
                    mbarrier.wait(memory.kv_empty.index(stage), kv_at.phase)
                    following = plan.tile(i_turn + 1)
                    at_kv = (following.i_b, following.i_kv, following.i)
                    copy_tile(k, at_kv, memory.k_full.index(stage), memory.k, stage, plan)
                    copy_tile(v, at_kv, memory.v_full.index(stage), memory.v, stage, plan)
            tile = following
            kv_at = kv_at.next()


@gluon.jit
def _hide(s, key, row, plan):
    """Scores that are not seen become -inf; keys are rows, queries columns."""
    o_n = gl.arange(0, ROWS, gl.SliceLayout(1, s.type.layout))
    o_m = gl.arange(0, ROWS, gl.SliceLayout(0, s.type.layout))
    first_seeing = o_n + (key - plan.causal_offset - row)
    # A column is what its lane adds (bits 1 and 2) and a constant, which becomes part of an
    # instruction when it stays alone.
    constant = (o_m & ~6)[None, :]
    seen = constant >= first_seeing[:, None] - (o_m & 6)[None, :]
    if plan.WINDOW:
        last_seeing = o_n + (key - plan.left_offset - row)
        seen = seen & (constant <= last_seeing[:, None] - (o_m & 6)[None, :])
    return gl.where(seen, s, float("-inf"))


@gluon.jit
def _pass_over(memory, at, n):
    """Give ``n`` steps back that only the other warpgroup takes."""
    for _ in range(n):
        memory.q.wait(at)
        memory.q.release(at.stage)
        memory.dout.wait(at)
        memory.dout.release(at.stage)
        at = at.next()
    return at


@gluon.jit
def _consume(dk, dv, memory, plan, scale, scale_log2, I_CONSUMER: gl.constexpr):
    HEAD_DIM: gl.constexpr = plan.HEAD_DIM
    DTYPE: gl.constexpr = plan.DTYPE
    # The second warpgroup's keys are seen a block of queries later.
    PASSES: gl.constexpr = plan.CAUSAL and I_CONSUMER == 1
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, ROWS, 16])
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    LEFT: gl.constexpr = gl.DotOperandLayout(0, LAYOUT, 2)
    plan = plan.sizes_anew()
    group = plan.heads // plan.kv_heads
    total = plan.steps(I_CONSUMER)
    at = memory.q.first_to_use()
    i_turn = gl.to_tensor(0)
    i = gl.to_tensor(0)
    key = (plan.tile(0).i * 2 + I_CONSUMER) * ROWS
    i_m, blocks = plan.queries(key)
    if PASSES:
        before, _ = plan.queries(key - ROWS)
        at = _pass_over(memory, at, i_m - before)
    acc_k = gl.zeros([ROWS, HEAD_DIM], gl.float32, LAYOUT)
    acc_v = gl.zeros([ROWS, HEAD_DIM], gl.float32, LAYOUT)
    mbarrier.wait(memory.k_full.index(0), 0)
    memory.q.wait(at)
    s = scores(matrix(memory.k, I_CONSUMER), matrix(memory.q.memory, at.stage), S_LAYOUT)
    s = warpgroup_mma_wait(0, deps=[s])
    for j in range(total):
        more = j + 1 < total
        last = i + 1 == blocks * group
        i_tile = i_turn % 2 * 2 + I_CONSUMER
        b_q = matrix(memory.q.memory, at.stage)
        b_dout = matrix(memory.dout.memory, at.stage)
        mbarrier.wait(memory.v_full.index(i_turn % 2), i_turn // 2 % 2)
        memory.dout.wait(at)
        dp = scores(matrix(memory.v, i_tile), b_dout, S_LAYOUT)
        if plan.CAUSAL:
            row = i_m * ROWS
            masked = key + ROWS - 1 > row + plan.causal_offset
            if plan.WINDOW:
                masked = masked | (key < row + (ROWS - 1) + plan.left_offset)
            if masked:
                s = _hide(s, key, row, plan)
        lse = memory.lse.index(at.stage).load(gl.SliceLayout(0, S_LAYOUT))
        p = gl.exp2(s * scale_log2 - lse[None, :])
        packed = pack(p, DTYPE)
        left = unpack(packed, DTYPE, LEFT)
        acc_v = warpgroup_mma(left, b_dout, acc_v, use_acc=i > 0, is_async=True)
        dp = warpgroup_mma_wait(1, deps=[dp])
        delta = memory.delta.index(at.stage).load(gl.SliceLayout(0, S_LAYOUT))
        ds = times(p, unpack(packed, DTYPE, S_LAYOUT), dp - delta[None, :])
        if (i == 0) & (i_turn > 0):
            # Gradients of the tile before were copied from where its keys and values had been.
            tma.store_wait(0)
            mbarrier.arrive(memory.kv_empty.index((i_turn + 1) % 2))
        next_key = key
        next_at = at.next()
        if plan.WINDOW:
            at_head = last | (i_m + 1 == plan.end(key))
        else:
            at_head = last | (i_m + 1 == gl.cdiv(plan.seqlen_q, ROWS))
        if plan.WINDOW and I_CONSUMER == 0:
            # The second warpgroup's keys are seen by later queries, too.
            behind = plan.end(key + ROWS) - plan.end(key)
            next_at = _pass_over(memory, next_at, gl.where(at_head & more, behind, 0))
        if PASSES:
            if last:
                next_key = (plan.tile(i_turn + 1).i * 2 + I_CONSUMER) * ROWS
            first, _ = plan.queries(next_key)
            before, _ = plan.queries(next_key - ROWS)
            next_at = _pass_over(memory, next_at, gl.where(at_head & more, first - before, 0))
        next_turn = gl.where(last, i_turn + 1, i_turn)
        i_next = next_turn % 2
        # After the last step there is no next block: its product is never used.
        mbarrier.wait(memory.k_full.index(i_next), next_turn // 2 % 2, pred=more)
        mbarrier.wait(memory.q.full.index(next_at.stage), next_at.phase, pred=more)
        next_q = matrix(memory.q.memory, next_at.stage)
        s = scores(matrix(memory.k, i_next * 2 + I_CONSUMER), next_q, S_LAYOUT)
        left = gl.convert_layout(ds, LEFT)
        acc_k = warpgroup_mma(left, b_q, acc_k, use_acc=i > 0, is_async=True)
        acc_v = warpgroup_mma_wait(2, deps=[acc_v])
        memory.dout.release(at.stage)
        # Divisions take their time beside the products that go on.
        if not PASSES:  # noqa: SIM102
            if last:
                next_key = (plan.tile(i_turn + 1).i * 2 + I_CONSUMER) * ROWS
        first, n = plan.queries(next_key)
        s, acc_k = warpgroup_mma_wait(0, deps=[s, acc_k])
        memory.q.release(at.stage)
        if last:
            to_v = matrix(memory.v, i_tile)
            to_v.store(acc_v.to(DTYPE))
            to_k = matrix(memory.k, i_tile)
            to_k.store((acc_k * scale).to(DTYPE))
            fence_async_shared()
            partition_barrier()
            tile = plan.tile(i_turn)
            at_kv = [tile.i_b, tile.i_kv, key, 0]
            tma.async_copy_shared_to_global(dv, at_kv, memory.v.index(i_tile))
            if plan.WINDOW or not plan.CAUSAL:
                # Copies to the same place share its registers. The address among them is then
                # written by one thread alone, and of all others ptxas keeps what it was, which
                # nothing ever set: from tile to tile, in a register too many.
                at_kv = [tile.i_kv, tile.i_b, key, 0]
            tma.async_copy_shared_to_global(dk, at_kv, memory.k.index(i_tile))
        at = next_at
        i_m = gl.where(at_head, first, i_m + 1)
        i = gl.where(last, 0, i + 1)
        i_turn = next_turn
        key = next_key
        blocks = n
    tma.store_wait(0)


@gluon.jit(do_not_specialize=SIZES)
def attention_backward_hopper_short_kv(
    q,
    k,
    v,
    dout,
    rows,
    dk,
    dv,
    heads,
    kv_heads,
    batch,
    seqlen_q,
    seqlen_k,
    causal_offset,
    left_offset,
    scale,
    scale_log2,
    HEAD_DIM: gl.constexpr,
    STAGES: gl.constexpr,
    CAUSAL: gl.constexpr,
    BY_HEAD: gl.constexpr,
):
    """Row i sees key j when j < seqlen_k, with CAUSAL j <= i + causal_offset, and j >= i +
    left_offset unless that is None, which wants CAUSAL.

    q, k, v, dout, dk, dv: (batch, heads, seqlen, head_dim) as descriptors of one head's 64 rows.
    Without CAUSAL dk has its heads before its batch.
    rows: fp32 (2 * batch * heads * padded seqlen_q): log-sum-exps in base 2, deltas.
    """
    gdc_wait()
    gdc_launch_dependents()
    # Keys past the end are rows of their own, which nobody writes: nothing to mask.
    plan = Plan(
        heads, kv_heads, batch, seqlen_q, seqlen_k, causal_offset,
        causal_offset if left_offset is None else left_offset,
        HEAD_DIM, CAUSAL, left_offset is not None, BY_HEAD, True, q.dtype,
    )  # fmt: skip
    four: gl.constexpr = [4]
    memory = Memory(
        gl.allocate_shared_memory(k.dtype, four + k.block_shape, k.layout),
        gl.allocate_shared_memory(v.dtype, four + v.block_shape, v.layout),
        new_ring(q, STAGES, 2),
        new_ring(dout, STAGES, 2),
        gl.allocate_shared_memory(gl.float32, [STAGES, ROWS], rows.layout),
        gl.allocate_shared_memory(gl.float32, [STAGES, ROWS], rows.layout),
        barriers(2, 1),
        barriers(2, 1),
        barriers(2, 2),
    )
    fence_async_shared()
    specialise(
        _consume, (dk, dv, memory, plan, scale, scale_log2),
        _produce, (q, k, v, dout, rows, memory, plan), 2,
    )  # fmt: skip
