"""The gradients of keys and values on Hopper GPUs at head dims above 128, in Gluon.

A program owns 64 keys and walks the queries that see them, 64 at a step. dk and dv fill the
registers of a warpgroup each, so two warpgroups share the work and not the keys: one multiplies the
scores and adds to dv, the other multiplies dp and adds to dk. Of each other they need only the
weights, which pass through shared memory.

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

from kernels.attention.hopper.backward.block import Work, in_order, mask, scores
from kernels.attention.hopper.problem import Sequence
from kernels.attention.hopper.tile_order import SIZES
from kernels.attention.hopper.weight_pairs import pack, unpack
from kernels.device.aggregates import aggregate
from kernels.device.hopper_rings import Ring, barriers, bring, meet, new_ring, partition_barrier

# Barriers of the two warpgroups.
P_THERE = gl.constexpr(0)
P_READ = gl.constexpr(1)


@aggregate
class Memory:
    """Rings of Q with the rows' log-sum-exps and of dO with their deltas; K and V, whose barriers
    ``kv_full`` are; the weights of a step."""

    k: gl.shared_memory_descriptor
    v: gl.shared_memory_descriptor
    q: Ring
    dout: Ring
    lse: gl.shared_memory_descriptor
    delta: gl.shared_memory_descriptor
    p: gl.shared_memory_descriptor
    kv_full: gl.shared_memory_descriptor


@gluon.jit
def _produce(q, k, v, dout, rows, memory, work):
    KV_BYTES: gl.constexpr = work.BLOCK_N * work.HEAD_DIM * 2
    BYTES: gl.constexpr = work.BLOCK_M * work.HEAD_DIM * 2 + work.BLOCK_M * 4
    q_ring = memory.q
    dout_ring = memory.dout
    at = q_ring.first_to_fill()
    at_kv = [work.i_b, work.i_kv, work.i_n * work.BLOCK_N, 0]
    i_h = work.i_kv * work.heads_per_kv
    i_m = work.shift
    for i in range(work.steps):
        row = (work.first + i_m) * work.BLOCK_M
        i_row = work.row(i_h, i_m)
        if i == 0:
            bring(k, at_kv, memory.kv_full.index(0), memory.k.index(0), KV_BYTES)
        ready = q_ring.acquire(at, BYTES)
        to = q_ring.memory.index(at.stage)
        tma.async_copy_global_to_shared(q, [work.i_b, i_h, row, 0], ready, to)
        tma.async_copy_global_to_shared(rows, [i_row], ready, memory.lse.index(at.stage))
        if i == 0:
            bring(v, at_kv, memory.kv_full.index(1), memory.v.index(0), KV_BYTES)
        ready = dout_ring.acquire(at, BYTES)
        to = dout_ring.memory.index(at.stage)
        tma.async_copy_global_to_shared(dout, [work.i_b, i_h, row, 0], ready, to)
        to = memory.delta.index(at.stage)
        tma.async_copy_global_to_shared(rows, [work.all_rows + i_row], ready, to)
        at = at.next()
        i_h, i_m = work.next(i_h, i_m)


@gluon.jit
def _exponentials(s, at, i_m, memory, work, scale_log2, LAYOUT: gl.constexpr):
    """Weights in pairs, of the scores of the step at ``at``, whose Q is not needed any more."""
    if work.CAUSAL:
        key = work.i_n * work.BLOCK_N
        row = (work.first + i_m) * work.BLOCK_M
        after = key - work.causal_offset - row
        until = key - work.left_offset - row
        masked = after + (work.BLOCK_N - 1) > 0
        if work.WINDOW:
            masked = masked | (until < work.BLOCK_M - 1)
        if masked:
            s = mask(s, after, until, work.seqlen_k - key, 0, True, work.WINDOW)
    lse = memory.lse.index(at.stage).load(gl.SliceLayout(0, LAYOUT))
    memory.q.release(at.stage)
    return pack(gl.exp2(s * scale_log2 - lse[None, :]), work.DTYPE)


@gluon.jit
def _write(gradient, to, staging, work):
    """Into global memory, through what held the block of keys or values."""
    staging.index(0).reshape([work.BLOCK_N, work.HEAD_DIM]).store(gradient.to(work.DTYPE))
    fence_async_shared()
    partition_barrier()
    at = [work.i_b, work.i_kv, work.i_n * work.BLOCK_N, 0]
    tma.async_copy_shared_to_global(to, at, staging.index(0))
    tma.store_wait(0)


@gluon.jit
def _hand_over(p, memory, work, LAYOUT: gl.constexpr):
    """Weights to the other warpgroup, when it has read those of the step before."""
    meet("sync", P_READ)
    memory.p.store(unpack(p, work.DTYPE, LAYOUT))
    meet("arrive", P_THERE)


@gluon.jit
def _weights(dv, memory, work, scale_log2):
    """The warpgroup of the scores and of dv."""
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, work.BLOCK_M, 16])
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, work.HEAD_DIM, 16])
    LEFT: gl.constexpr = gl.DotOperandLayout(0, LAYOUT, 2)
    at = memory.q.first_to_use()
    acc = gl.zeros([work.BLOCK_N, work.HEAD_DIM], gl.float32, LAYOUT)
    i_h = work.i_kv * work.heads_per_kv
    i_m = work.shift
    mbarrier.wait(memory.kv_full.index(0), 0)
    s = scores(memory.k.index(0), memory.q, at, work, work.BLOCK_M, S_LAYOUT)
    s = warpgroup_mma_wait(0, deps=[s])
    for _ in range(work.steps - 1):
        p = _exponentials(s, at, i_m, memory, work, scale_log2, S_LAYOUT)
        memory.dout.wait(at)
        b_dout = memory.dout.memory.index(at.stage).reshape([work.BLOCK_M, work.HEAD_DIM])
        acc = warpgroup_mma(unpack(p, work.DTYPE, LEFT), b_dout, acc, is_async=True)
        _hand_over(p, memory, work, S_LAYOUT)
        next_at = at.next()
        s = scores(memory.k.index(0), memory.q, next_at, work, work.BLOCK_M, S_LAYOUT)
        acc, s = warpgroup_mma_wait(0, deps=[acc, s])
        memory.dout.release(at.stage)
        at = next_at
        i_h, i_m = work.next(i_h, i_m)
    p = _exponentials(s, at, i_m, memory, work, scale_log2, S_LAYOUT)
    memory.dout.wait(at)
    b_dout = memory.dout.memory.index(at.stage).reshape([work.BLOCK_M, work.HEAD_DIM])
    acc = warpgroup_mma(unpack(p, work.DTYPE, LEFT), b_dout, acc, is_async=True)
    _hand_over(p, memory, work, S_LAYOUT)
    acc = warpgroup_mma_wait(0, deps=[acc])
    _write(acc, dv, memory.k, work)


@gluon.jit
def _differences(dp, at, memory, work, LAYOUT: gl.constexpr):
    """The scores' gradients: weights times dp - delta."""
    delta = memory.delta.index(at.stage).load(gl.SliceLayout(0, LAYOUT))
    memory.dout.release(at.stage)
    meet("sync", P_THERE)
    p = memory.p.load(LAYOUT).to(gl.float32)
    return p * (dp - delta[None, :])


@gluon.jit
def _keys(dk, memory, work, scale):
    """The warpgroup of dp and of dk."""
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, work.BLOCK_M, 16])
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, work.HEAD_DIM, 16])
    LEFT: gl.constexpr = gl.DotOperandLayout(0, LAYOUT, 2)
    at = memory.q.first_to_use()
    acc = gl.zeros([work.BLOCK_N, work.HEAD_DIM], gl.float32, LAYOUT)
    meet("arrive", P_READ)
    mbarrier.wait(memory.kv_full.index(1), 0)
    dp = scores(memory.v.index(0), memory.dout, at, work, work.BLOCK_M, S_LAYOUT)
    dp = warpgroup_mma_wait(0, deps=[dp])
    for _ in range(work.steps - 1):
        ds = _differences(dp, at, memory, work, S_LAYOUT)
        meet("arrive", P_READ)
        left = gl.convert_layout(ds.to(work.DTYPE), LEFT)
        memory.q.wait(at)
        b_q = memory.q.memory.index(at.stage).reshape([work.BLOCK_M, work.HEAD_DIM])
        acc = warpgroup_mma(left, b_q, acc, is_async=True)
        next_at = at.next()
        dp = scores(memory.v.index(0), memory.dout, next_at, work, work.BLOCK_M, S_LAYOUT)
        acc = warpgroup_mma_wait(1, deps=[acc])
        memory.q.release(at.stage)
        dp = warpgroup_mma_wait(0, deps=[dp])
        at = next_at
    ds = _differences(dp, at, memory, work, S_LAYOUT)
    left = gl.convert_layout(ds.to(work.DTYPE), LEFT)
    memory.q.wait(at)
    b_q = memory.q.memory.index(at.stage).reshape([work.BLOCK_M, work.HEAD_DIM])
    acc = warpgroup_mma(left, b_q, acc, is_async=True)
    acc = warpgroup_mma_wait(0, deps=[acc])
    _write(acc * scale, dk, memory.v, work)


@gluon.jit(do_not_specialize=SIZES)
def attention_backward_hopper_kv(
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
    heads_together,
    scale,
    scale_log2,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    HEAD_DIM: gl.constexpr,
    STAGES: gl.constexpr,
    CAUSAL: gl.constexpr,
):
    """Row i sees key j when j < seqlen_k, with CAUSAL j <= i + causal_offset, and j >= i +
    left_offset unless that is None, which wants CAUSAL.

    q, k, v, dout, dk, dv: (batch, heads, seqlen, head_dim) as descriptors of one head's boxes.
    rows: fp32 (2 * batch * heads * padded seqlen_q): log-sum-exps in base 2, deltas.
    """
    gdc_wait()
    gdc_launch_dependents()
    n_n = gl.cdiv(seqlen_k, BLOCK_N)
    i_n, i_bh = in_order(n_n, batch, kv_heads, heads_together, False)
    n_m = gl.cdiv(seqlen_q, BLOCK_M)
    padded_q = n_m * BLOCK_M
    first = 0
    if CAUSAL:
        # Keys that no query sees have a block, too, all of whose weights are 0.
        first = gl.minimum(gl.maximum(i_n * BLOCK_N - causal_offset, 0) // BLOCK_M, n_m - 1)
    blocks = n_m - first
    if left_offset is not None:
        seen = gl.cdiv(gl.maximum((i_n + 1) * BLOCK_N - left_offset, 1), BLOCK_M)
        blocks = gl.minimum(n_m, seen) - first
    heads_per_kv = heads // kv_heads
    # Keys past the end are rows of their own, which nobody writes: nothing to mask.
    i_b = i_bh // kv_heads
    work = Work(
        Sequence(i_b, i_b, seqlen_q, seqlen_k, causal_offset, causal_offset, False),
        gl.to_tensor(0), i_bh // kv_heads, i_bh % kv_heads, i_n, gl.to_tensor(first), blocks,
        blocks * heads_per_kv, gl.to_tensor(0), heads, heads_per_kv, padded_q,
        batch * heads * padded_q, seqlen_k, causal_offset,
        causal_offset if left_offset is None else left_offset, BLOCK_M, BLOCK_N, HEAD_DIM,
        CAUSAL, True, left_offset is not None, q.dtype,
    )  # fmt: skip
    one: gl.constexpr = [1]
    memory = Memory(
        gl.allocate_shared_memory(k.dtype, one + k.block_shape, k.layout),
        gl.allocate_shared_memory(v.dtype, one + v.block_shape, v.layout),
        new_ring(q, STAGES, 2),
        new_ring(dout, STAGES, 2),
        gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK_M], rows.layout),
        gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK_M], rows.layout),
        gl.allocate_shared_memory(
            q.dtype,
            [BLOCK_N, BLOCK_M],
            gl.NVMMASharedLayout.get_default_for([BLOCK_N, BLOCK_M], q.dtype),
        ),
        barriers(2, 1),
    )
    fence_async_shared()
    gl.warp_specialize(
        [
            (_weights, (dv, memory, work, scale_log2)),
            (_keys, (dk, memory, work, scale)),
            (_produce, (q, k, v, dout, rows, memory, work)),
        ],
        [4, 1],
        [240, 24],
    )
