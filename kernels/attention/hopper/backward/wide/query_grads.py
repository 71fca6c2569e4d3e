"""The gradient of queries on Hopper GPUs at head dims above 128, in Gluon.

A program owns 128 queries, 64 a consumer warpgroup, and walks the keys they see, 64 at a step. Q
and dO stay in shared memory, which leaves two stages of K and one of V: V is free again before dq
is added to, K after it.

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

from kernels.attention.hopper.backward.block import in_order, keys, keys_before, scores
from kernels.attention.hopper.tile_order import SIZES, anew
from kernels.device.aggregates import aggregate
from kernels.device.hopper_rings import (
    ROWS,
    Ring,
    barriers,
    bring,
    new_ring,
    partition_barrier,
    pass_over,
    specialise,
)


@aggregate
class Memory:
    """Rings of K and V; Q and dO, (2, 1, 1, 64, HEAD_DIM), whose barriers ``full`` are: 0 and 1 of
    Q, 2 and 3 of dO."""

    q: gl.shared_memory_descriptor
    dout: gl.shared_memory_descriptor
    full: gl.shared_memory_descriptor
    k: Ring
    v: Ring


@aggregate
class Rows:
    """A program's 128 rows of one head, and the keys they see."""

    i_b: gl.tensor
    i_h: gl.tensor
    i_kv: gl.tensor
    row: gl.tensor
    in_workspace: gl.tensor
    padded_q: gl.tensor
    all_rows: gl.tensor
    seqlen_k: gl.tensor
    causal_offset: gl.tensor
    left_offset: gl.tensor
    BLOCK_N: gl.constexpr
    HEAD_DIM: gl.constexpr
    CAUSAL: gl.constexpr
    WINDOW: gl.constexpr
    DTYPE: gl.constexpr


@gluon.jit
def _copy_rows(x, to, full, FIRST: gl.constexpr, work):
    """Start to bring a program's rows, each consumer's with a barrier of its own."""
    for i in gl.static_range(2):
        at = [work.i_b, work.i_h, work.row + i * ROWS, 0]
        bring(x, at, full.index(FIRST + i), to.index(i), ROWS * work.HEAD_DIM * 2)


@gluon.jit
def _copy_block(x, ring, at, i, work):
    """Start to bring the block i of keys or values into the ring."""
    box = [work.i_b, work.i_kv, i * work.BLOCK_N, 0]
    return ring.fill(at, x, box, work.BLOCK_N * work.HEAD_DIM * 2)


@gluon.jit
def _produce(q, k, v, dout, memory, work):
    k_at = memory.k.first_to_fill()
    v_at = memory.v.first_to_fill()
    _copy_rows(q, memory.q, memory.full, 0, work)
    first = keys_before(work, work.row)
    k_at = _copy_block(k, memory.k, k_at, first, work)
    _copy_rows(dout, memory.dout, memory.full, 2, work)
    v_at = _copy_block(v, memory.v, v_at, first, work)
    for i in range(first + 1, keys(work, work.row + ROWS)):
        k_at = _copy_block(k, memory.k, k_at, i, work)
        v_at = _copy_block(v, memory.v, v_at, i, work)


@gluon.jit
def hide(s, row, i, work):
    """Scores of 64 rows, from ``row`` on, and the block i of keys: -inf where a key is not seen."""
    masked = (i + 1) * work.BLOCK_N > work.seqlen_k
    if work.CAUSAL:
        masked = masked | ((i + 1) * work.BLOCK_N - 1 > row + work.causal_offset)
    if masked:
        # A column is what its lane adds (bits 1 and 2) and a constant, which becomes part of an
        # instruction when it stays alone.
        o_n = gl.arange(0, work.BLOCK_N, gl.SliceLayout(0, s.type.layout))
        o_m = gl.arange(0, ROWS, gl.SliceLayout(1, s.type.layout))
        last = o_m * 0 + (work.seqlen_k - 1 - i * work.BLOCK_N)
        if work.CAUSAL:
            last = gl.minimum(row + work.causal_offset - i * work.BLOCK_N + o_m, last)
        constant = (o_n & ~6)[None, :]
        s = gl.where(constant <= last[:, None] - (o_n & 6)[None, :], s, float("-inf"))
    if work.WINDOW:  # noqa: SIM102
        if i * work.BLOCK_N < row + (ROWS - 1) + work.left_offset:
            o_n = gl.arange(0, work.BLOCK_N, gl.SliceLayout(0, s.type.layout))
            o_m = gl.arange(0, ROWS, gl.SliceLayout(1, s.type.layout))
            first = row + work.left_offset - i * work.BLOCK_N + o_m
            constant = (o_n & ~6)[None, :]
            s = gl.where(constant >= first[:, None] - (o_n & 6)[None, :], s, float("-inf"))
    return s


@gluon.jit
def gradients(s, dp, lse, delta, row, i, work, scale_log2, LAYOUT: gl.constexpr):
    """The scores' gradients, as left operand of dq."""
    s = hide(s, row, i, work)
    p = gl.exp2(s * scale_log2 - lse[:, None])
    return gl.convert_layout((p * (dp - delta[:, None])).to(work.DTYPE), LAYOUT)


@gluon.jit
def _consume(dq, rows, memory, work, scale, scale_log2, I_CONSUMER: gl.constexpr):
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, work.BLOCK_N, 16])
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, work.HEAD_DIM, 16])
    LEFT: gl.constexpr = gl.DotOperandLayout(0, LAYOUT, 2)
    k_ring = memory.k
    v_ring = memory.v
    k_at = k_ring.first_to_use()
    v_at = v_ring.first_to_use()
    row = work.row + I_CONSUMER * ROWS
    first = keys_before(work, row)
    blocks = keys(work, row)
    if work.WINDOW and I_CONSUMER == 1:
        # The first warpgroup's rows see a block of keys ahead.
        n = first - keys_before(work, work.row)
        k_at, v_at = pass_over(k_ring, v_ring, k_at, v_at, n)
    o_m = row + gl.arange(0, ROWS, gl.SliceLayout(1, S_LAYOUT))
    inside = o_m < work.padded_q
    p_rows = rows + work.in_workspace + o_m
    lse = gl.load(p_rows, mask=inside, other=float("inf"))
    delta = gl.load(p_rows + work.all_rows, mask=inside, other=0.0)
    q = memory.q.index(I_CONSUMER)
    dout = memory.dout.index(I_CONSUMER)
    acc = gl.zeros([ROWS, work.HEAD_DIM], gl.float32, LAYOUT)
    mbarrier.wait(memory.full.index(I_CONSUMER), 0)
    s = scores(q, k_ring, k_at, work, work.BLOCK_N, S_LAYOUT)
    mbarrier.wait(memory.full.index(2 + I_CONSUMER), 0)
    dp = scores(dout, v_ring, v_at, work, work.BLOCK_N, S_LAYOUT)
    s, dp = warpgroup_mma_wait(0, deps=[s, dp])
    v_ring.release(v_at.stage)
    for i in range(first, blocks - 1):
        left = gradients(s, dp, lse, delta, row, i, work, scale_log2, LEFT)
        b_k = k_ring.memory.index(k_at.stage).reshape([work.BLOCK_N, work.HEAD_DIM])
        acc = warpgroup_mma(left, b_k, acc, is_async=True)
        v_at = v_at.next()
        # Always 0, which the compiler cannot know: else it would keep, and spill, the addresses of
        # all parts of what does not change from step to step.
        zero = (anew(i) if work.WINDOW else i) >> 30
        q = memory.q.index(I_CONSUMER + zero)
        dout = memory.dout.index(I_CONSUMER + zero)
        dp = scores(dout, v_ring, v_at, work, work.BLOCK_N, S_LAYOUT)
        next_at = k_at.next()
        s = scores(q, k_ring, next_at, work, work.BLOCK_N, S_LAYOUT)
        acc = warpgroup_mma_wait(2, deps=[acc])
        k_ring.release(k_at.stage)
        dp = warpgroup_mma_wait(1, deps=[dp])
        v_ring.release(v_at.stage)
        s = warpgroup_mma_wait(0, deps=[s])
        k_at = next_at
    if work.WINDOW:
        row = anew(work.row) + I_CONSUMER * ROWS
    left = gradients(s, dp, lse, delta, row, blocks - 1, work, scale_log2, LEFT)
    b_k = k_ring.memory.index(k_at.stage).reshape([work.BLOCK_N, work.HEAD_DIM])
    acc = warpgroup_mma(left, b_k, acc, is_async=True)
    acc = warpgroup_mma_wait(0, deps=[acc])
    q = memory.q.index(I_CONSUMER)
    q.reshape([ROWS, work.HEAD_DIM]).store((acc * scale).to(work.DTYPE))
    fence_async_shared()
    partition_barrier()
    tma.async_copy_shared_to_global(dq, [work.i_b, work.i_h, row, 0], q)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=SIZES)
def attention_backward_hopper_q(
    q,
    k,
    v,
    dout,
    rows,
    dq,
    heads,
    kv_heads,
    batch,
    seqlen_q,
    seqlen_k,
    causal_offset,
    left_offset,
    heads_together,
    padded_q,
    scale,
    scale_log2,
    BLOCK_N: gl.constexpr,
    HEAD_DIM: gl.constexpr,
    CAUSAL: gl.constexpr,
):
    """Row i sees key j when j < seqlen_k, with CAUSAL j <= i + causal_offset, and j >= i +
    left_offset unless that is None, which wants CAUSAL.

    q, k, v, dout, dq: (batch, heads, seqlen, head_dim) as descriptors of one head's boxes.
    rows: fp32 (2 * batch * heads * padded_q): log-sum-exps in base 2, deltas.
    """
    gdc_wait()
    gdc_launch_dependents()
    n_m = gl.cdiv(seqlen_q, 2 * ROWS)
    i_m, i_bh = in_order(n_m, batch, heads, heads_together, True)
    i_h = i_bh % heads
    work = Rows(
        i_bh // heads, i_h, i_h // (heads // kv_heads), i_m * 2 * ROWS, i_bh * padded_q, padded_q,
        batch * heads * padded_q, seqlen_k, causal_offset,
        causal_offset if left_offset is None else left_offset,
        BLOCK_N, HEAD_DIM, CAUSAL, left_offset is not None, q.dtype,
    )  # fmt: skip
    two: gl.constexpr = [2]
    memory = Memory(
        gl.allocate_shared_memory(q.dtype, two + q.block_shape, q.layout),
        gl.allocate_shared_memory(q.dtype, two + dout.block_shape, dout.layout),
        barriers(4, 1),
        new_ring(k, 2, 2),
        new_ring(v, 1, 2),
    )
    fence_async_shared()
    specialise(
        _consume, (dq, rows, memory, work, scale, scale_log2),
        _produce, (q, k, v, dout, memory, work), 2,
    )  # fmt: skip
