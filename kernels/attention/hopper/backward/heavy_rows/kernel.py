"""What corrects the gradients of rows of one heavy weight on Hopper GPUs, in Gluon.

portable/backward/heavy_rows.py tells what is computed and is its twin. Programs look for marks
before their warps part; where there is one, a producer warp brings Q and dO of up to 128 rows and
rings of K and V, and two consumer warpgroups of 64 rows each multiply scores and dp. They take
turns, so that one's products fill the time in which the other exponentiates.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, warpgroup_mma_wait

from kernels.attention.common.numerics.constants import TO_BASE_2
from kernels.attention.common.numerics.heavy_rows import is_marked
from kernels.attention.common.packed.sequences import bounds
from kernels.attention.common.program_order import block_of
from kernels.attention.hopper.backward.block import scores
from kernels.attention.hopper.backward.wide.query_grads import hide
from kernels.attention.hopper.tile_order import SIZES
from kernels.device.hopper_rings import ROWS, meet, new_ring, pass_over, specialise

from .plan import BLOCK_M, MOST, SOME, Memory, Plan


@gluon.jit
def _look(lse, dlse, corrected, cu_q, found, plan):
    """Leave which rows have marks; dlse, or 0, in rows without one. Whether there is any."""
    # Few blocks a thread, each with divisions of its own; 32 bytes of a row at a time.
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, 1], [4, 8], [4, 1], [1, 0])
    ONE: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    o_half = gl.arange(0, 2 * SOME, gl.SliceLayout(1, LAYOUT))
    o_m = gl.arange(0, ROWS, gl.SliceLayout(0, LAYOUT))
    n_programs = gl.num_programs(0)
    anywhere = gl.to_tensor(0).to(gl.int64)
    for i in range(plan.rounds()):
        b_block = block_of(i * n_programs * SOME, o_half // 2, n_programs)
        b_bh = b_block // plan.n_blocks
        b_own = b_block % plan.n_blocks * BLOCK_M + o_half % 2 * ROWS
        if plan.PACKED:
            b_b = gl.minimum(b_bh, plan.n_all // plan.n_blocks - 1) // plan.heads
            b_first, b_rows = bounds(cu_q, b_b)
            b_at = (b_bh % plan.heads).to(gl.int64) * plan.tokens + b_first + b_own
        else:
            b_rows = b_own * 0 + plan.seqlen_q
            b_at = b_bh.to(gl.int64) * plan.seqlen_q + b_own
        b_row = b_at[:, None] + o_m[None, :]
        inside = (b_block < plan.n_all)[:, None] & (b_own[:, None] + o_m[None, :] < b_rows[:, None])
        b_mark = is_marked(gl.load(lse + b_row, mask=inside, other=0.0))
        b_less = gl.zeros([2 * SOME, ROWS], gl.float32, LAYOUT)
        if dlse is not None:
            b_less = gl.load(dlse + b_row, mask=inside, other=0.0)
        gl.store(corrected + b_row, b_less, mask=inside & (b_mark == 0))
        bits = gl.sum(gl.max(b_mark.to(gl.int32), 1).to(gl.int64) << o_half.to(gl.int64), 0)
        found.index(i).store(gl.full([1], bits, gl.int64, ONE))
        anywhere |= bits
    return anywhere


@gluon.jit
def _bits(found, i_round, WARPS: gl.constexpr):
    ONE: gl.constexpr = gl.BlockedLayout([1], [32], [WARPS], [0])
    return gl.sum(found.index(i_round).load(ONE), 0)


@gluon.jit
def _produce(q, k, v, dout, cu_q, cu_k, memory, plan):
    N: gl.constexpr = plan.BLOCK_N
    BYTES: gl.constexpr = N * plan.HEAD_DIM * 2
    Q_BYTES: gl.constexpr = ROWS * plan.HEAD_DIM * 2
    at_0 = memory.q_0.first_to_fill()
    at_1 = memory.q_1.first_to_fill()
    k_at = memory.k.first_to_fill()
    v_at = memory.v.first_to_fill()
    for i_round in range(plan.rounds()):
        bits = _bits(memory.found, i_round, 1)
        if bits != 0:
            for i_own in range(SOME):
                which = ((bits >> (2 * i_own)) & 3).to(gl.int32)
                if which != 0:
                    tile = plan.tile(i_round * SOME + i_own, which, cu_q, cu_k)
                    for i in range(tile.first, tile.end):
                        at = tile.own.k_box(tile.i_kv, i * N)
                        k_at = memory.k.fill(k_at, k, at, BYTES)
                        if i == tile.first:
                            if (which & 1) != 0:
                                box = tile.own.q_box(tile.i_h, tile.row)
                                memory.q_0.fill(at_0, q, box, Q_BYTES)
                                at_0 = memory.dout_0.fill(at_0, dout, box, Q_BYTES)
                            if (which & 2) != 0:
                                box = tile.own.q_box(tile.i_h, tile.row + ROWS)
                                memory.q_1.fill(at_1, q, box, Q_BYTES)
                                at_1 = memory.dout_1.fill(at_1, dout, box, Q_BYTES)
                        v_at = memory.v.fill(v_at, v, at, BYTES)


@gluon.jit
def _rounded_delta(out, dout, tile, row, columns, strides, LAYOUT: gl.constexpr):
    """rowsum(out * dout) of a consumer's 64 rows, 64 columns at a time."""
    OWN: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    o_m = gl.arange(0, ROWS, gl.SliceLayout(1, OWN))
    total = gl.zeros([ROWS], gl.float32, gl.SliceLayout(1, OWN))
    for i in gl.static_range(tile.HEAD_DIM // 64):
        o_d = i * 64 + gl.arange(0, 64, gl.SliceLayout(0, OWN))
        inside = (row + o_m < tile.own.seqlen_q)[:, None] & (o_d < columns)[None, :]
        p_out = out + (o_m[:, None] * strides.row + o_d[None, :] * strides.column)
        b_out = gl.load(p_out, mask=inside, other=0.0)
        b_dout = dout.slice(i * 64, 64, 1).load(OWN)
        total += gl.sum(b_out.to(gl.float32) * b_dout.to(gl.float32), 1)
    return gl.convert_layout(total, LAYOUT)


@gluon.jit
def _correct(
    out, lse, dlse, corrected, q_ring, dout_ring, q_at, k_ring, v_ring, k_at, v_at, tile, plan,
    out_strides, columns, scale_log2, in_turns, I_CONSUMER: gl.constexpr,
):  # fmt: skip
    """Write what dlse is to be in a consumer's rows that have a mark."""
    N: gl.constexpr = plan.BLOCK_N
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, N, 16])
    S_ROWS: gl.constexpr = gl.SliceLayout(1, S_LAYOUT)
    own = tile.own
    row = tile.row + I_CONSUMER * ROWS
    o_m = gl.arange(0, ROWS, S_ROWS)
    in_m = row + o_m < own.seqlen_q
    p_row = tile.o_row + I_CONSUMER * ROWS + o_m
    b_lse = gl.load(lse + p_row, mask=in_m, other=float("inf"))
    b_exponent = b_lse * TO_BASE_2
    o_first = row
    out += tile.i_h.to(gl.int64) * out_strides.head
    if plan.PACKED:
        o_first += own.q_at - own.seqlen_q
    else:
        out += own.q_at.to(gl.int64) * out_strides.batch
    out += o_first.to(gl.int64) * out_strides.row
    dout_ring.wait(q_at)
    dout = dout_ring.memory.index(q_at.stage).reshape([ROWS, plan.HEAD_DIM])
    # The start, to which the weighted mean of what dp differs by is added.
    b_start = _rounded_delta(out, dout, tile, row, columns, out_strides, S_ROWS)
    b_total = gl.zeros([ROWS], gl.float32, S_ROWS)
    b_more = gl.zeros([ROWS], gl.float32, S_ROWS)
    q_ring.wait(q_at)
    for i in range(tile.first, tile.end):
        # Always 0, which the compiler cannot know: else it would keep, and spill, the addresses of
        # all parts of what does not change from step to step.
        zero = i >> 30
        own_q = q_ring.memory.index(q_at.stage + zero)
        own_dout = dout_ring.memory.index(q_at.stage + zero)
        if plan.IN_TURNS:  # noqa: SIM102
            if in_turns:
                meet("sync", I_CONSUMER)
        s = scores(own_q, k_ring, k_at, plan, N, S_LAYOUT)
        dp = scores(own_dout, v_ring, v_at, plan, N, S_LAYOUT)
        s = warpgroup_mma_wait(1, deps=[s])
        if plan.IN_TURNS:  # noqa: SIM102
            if in_turns:
                meet("arrive", 1 - I_CONSUMER)
        k_ring.release(k_at.stage)
        k_at = k_at.next()
        p = gl.exp2(hide(s, row, i, tile) * scale_log2 - b_exponent[:, None])
        dp = warpgroup_mma_wait(0, deps=[dp])
        v_ring.release(v_at.stage)
        v_at = v_at.next()
        b_total += gl.sum(p, 1)
        b_more += gl.sum(p * (dp - b_start[:, None]), 1)
    q_ring.release(q_at.stage)
    dout_ring.release(q_at.stage)
    b_delta = b_start + b_more / gl.where(b_total == 0.0, 1.0, b_total)
    if dlse is not None:
        b_delta -= gl.load(dlse + p_row, mask=in_m, other=0.0)
    gl.store(corrected + p_row, -b_delta, mask=in_m & is_marked(b_lse))
    return k_at, v_at


@gluon.jit
def _consume(
    out, lse, dlse, corrected, cu_q, cu_k, memory, plan, out_strides, columns, scale_log2,
    I_CONSUMER: gl.constexpr,
):  # fmt: skip
    k_ring = memory.k
    v_ring = memory.v
    q_ring = memory.q_0 if I_CONSUMER == 0 else memory.q_1
    dout_ring = memory.dout_0 if I_CONSUMER == 0 else memory.dout_1
    q_at = q_ring.first_to_use()
    k_at = k_ring.first_to_use()
    v_at = v_ring.first_to_use()
    if plan.IN_TURNS and I_CONSUMER == 1:
        meet("arrive", 0)  # consumer 0 has the first turn
    for i_round in range(plan.rounds()):
        bits = _bits(memory.found, i_round, 4)
        if bits != 0:
            for i_own in range(SOME):
                which = ((bits >> (2 * i_own)) & 3).to(gl.int32)
                if which != 0:
                    tile = plan.tile(i_round * SOME + i_own, which, cu_q, cu_k)
                    if which == 2 - I_CONSUMER:  # marks of the other alone
                        n = tile.end - tile.first
                        k_at, v_at = pass_over(k_ring, v_ring, k_at, v_at, n)
                    else:
                        k_at, v_at = _correct(
                            out, lse, dlse, corrected, q_ring, dout_ring, q_at, k_ring, v_ring,
                            k_at, v_at, tile, plan, out_strides, columns, scale_log2, which == 3,
                            I_CONSUMER,
                        )  # fmt: skip
                        q_at = q_at.next()
    if plan.IN_TURNS and I_CONSUMER == 0:
        meet("sync", 0)  # takes the turn nobody waits for


@gluon.jit(do_not_specialize=SIZES)
def attention_backward_hopper_marked(
    q,
    k,
    v,
    dout,
    out,
    lse,
    dlse,
    corrected,
    cu_q,
    cu_k,
    out_strides,
    n_blocks,
    n_all,
    heads,
    heads_per_kv,
    seqlen_q,
    seqlen_k,
    tokens,
    causal_offset,
    left_offset,
    columns,
    scale_log2,
    BLOCK_N: gl.constexpr,
    HEAD_DIM: gl.constexpr,
    Q_STAGES: gl.constexpr,
    K_STAGES: gl.constexpr,
    V_STAGES: gl.constexpr,
    CAUSAL: gl.constexpr,
    IN_TURNS: gl.constexpr,
):
    """As ``attention_backward_marked``; row i sees key j when j < seqlen_k, with CAUSAL j <= i +
    causal_offset, and j >= i + left_offset unless that is None, which wants CAUSAL.

    q, k, v, dout: (batch, heads, seqlen, head_dim) as descriptors of one head's boxes, ragged ones
    beside cu_q and cu_k. out has ``columns`` of its own strides.
    """
    plan = Plan(
        n_blocks, n_all, heads, heads_per_kv, seqlen_q, seqlen_k, tokens, causal_offset,
        causal_offset if left_offset is None else left_offset,
        BLOCK_N, HEAD_DIM, CAUSAL, left_offset is not None, cu_q is not None, IN_TURNS,
    )  # fmt: skip
    found = gl.allocate_shared_memory(gl.int64, [MOST, 1], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    anywhere = _look(lse, dlse, corrected, cu_q, found, plan)
    memory = Memory(
        new_ring(q, Q_STAGES, 1),
        new_ring(q, Q_STAGES, 1),
        new_ring(dout, Q_STAGES, 1),
        new_ring(dout, Q_STAGES, 1),
        new_ring(k, K_STAGES, 2),
        new_ring(v, V_STAGES, 2),
        found,
    )
    fence_async_shared()
    if anywhere != 0:
        # A producer that walks two kinds of rows has more to remember than others have.
        specialise(
            _consume,
            (
                out, lse, dlse, corrected, cu_q, cu_k, memory, plan, out_strides, columns,
                scale_log2,
            ),
            _produce, (q, k, v, dout, cu_q, cu_k, memory, plan), 2, (232, 40),
        )  # fmt: skip
