"""The attention backward pass of Hopper GPUs in Gluon: a producer warp, two consumer warpgroups.

A program owns a block of keys and walks the queries that see it. Scores are transposed, keys by
queries: the weights and their gradients then are left operands in registers of what is added to dv
and dk, and only the scores' gradients pass through shared memory, to be multiplied by the keys.
What that gives the queries comes from many programs. It is added in fixed point, where sums are the
same in any order (hopper/backward/row_stats.py tells how): gradients are the same bits at every
run.

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

from kernels.attention.hopper.backward.block import SIZES, Work, in_order, mask
from kernels.attention.hopper.backward.one_pass.sums import add, units
from kernels.attention.hopper.packed.tiles import FIELDS
from kernels.attention.hopper.problem import Sequence
from kernels.attention.hopper.weight_pairs import pack, times, unpack
from kernels.device.aggregates import aggregate
from kernels.device.hopper_rings import ROWS, Cursor, barriers, specialise


@aggregate
class Memory:
    """What the producer fills, and the tiles that pass through shared memory.

    A stage holds Q, dO and the rows' log-sum-exp, delta and norm of dO (``rows``, 3 a stage); Q and
    ``rows`` are announced by ``q_full``, dO by ``dout_full``, K, then V by ``kv_full``. ``ds`` has
    two stages: a consumer writes one while the other still multiplies by that of the step before.
    Of ``dq`` each consumer has a tile. Else named barriers say what is ready (``_meet``).
    """

    k: gl.shared_memory_descriptor
    v: gl.shared_memory_descriptor
    q: gl.shared_memory_descriptor
    dout: gl.shared_memory_descriptor
    rows: gl.shared_memory_descriptor
    ds: gl.shared_memory_descriptor
    dq: gl.shared_memory_descriptor
    kv_full: gl.shared_memory_descriptor
    q_full: gl.shared_memory_descriptor
    dout_full: gl.shared_memory_descriptor


# Named barriers; Triton itself uses 0 to 3. Of FULL and READ each consumer has one of each stage of
# ds, of EMPTY each stage of Q.
FULL = gl.constexpr(4)
READ = gl.constexpr(8)
EMPTY = gl.constexpr(12)
END = gl.constexpr(15)


@gluon.constexpr_function
def _named_barrier(operation, warps):
    """PTX of a barrier of so many warps."""
    return f"bar.{operation} $1, {32 * warps}; mov.b32 $0, 0;"


@gluon.jit
def _meet(OPERATION: gl.constexpr, number, WARPS: gl.constexpr, OWN: gl.constexpr):
    """Say so to those who wait at a named barrier of WARPS warps (arrive), or wait there (sync);
    OWN of them come from here. An mbarrier would cost consumers a barrier among themselves."""
    ONE_A_THREAD: gl.constexpr = gl.BlockedLayout([1], [32], [OWN], [0])
    barrier = gl.full([32 * OWN], 0, gl.int32, ONE_A_THREAD) + number
    ASM: gl.constexpr = _named_barrier(OPERATION, WARPS)
    gl.inline_asm_elementwise(ASM, "=r,r", [barrier], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def _produce(q, k, v, dout, rows, memory, work):
    KV_BYTES: gl.constexpr = work.BLOCK_N * work.HEAD_DIM * 2
    Q_BYTES: gl.constexpr = work.BLOCK_M * work.HEAD_DIM * 2
    ROWS_BYTES: gl.constexpr = work.BLOCK_M * 4 * 3
    at = Cursor(gl.to_tensor(0), gl.to_tensor(1), work.STAGES)
    i_n = work.i_n * work.BLOCK_N
    i_h = work.i_kv * work.heads_per_kv
    i_m = work.shift
    for i in range(work.steps):
        row = (work.first + i_m) * work.BLOCK_M
        if i == 0:
            ready = memory.kv_full.index(0)
            mbarrier.expect(ready, KV_BYTES)
            tma.async_copy_global_to_shared(
                k, work.own.k_box(work.i_kv, i_n), ready, memory.k.index(0)
            )
        if i >= work.STAGES:
            _meet("sync", EMPTY + at.stage, 9, 1)
        ready = memory.q_full.index(at.stage)
        mbarrier.expect(ready, Q_BYTES + ROWS_BYTES)
        to = memory.q.index(at.stage)
        tma.async_copy_global_to_shared(q, work.own.q_box(i_h, row), ready, to)
        # Log-sum-exps, deltas and norms of all rows of the problem follow each other.
        i_row = work.row(i_h, i_m)
        for j in gl.static_range(3):
            to = memory.rows.index(at.stage * 3 + j)
            tma.async_copy_global_to_shared(rows, [j * work.all_rows + i_row], ready, to)
        if i == 0:
            ready = memory.kv_full.index(1)
            mbarrier.expect(ready, KV_BYTES)
            tma.async_copy_global_to_shared(
                v, work.own.k_box(work.i_kv, i_n), ready, memory.v.index(0)
            )
        ready = memory.dout_full.index(at.stage)
        mbarrier.expect(ready, Q_BYTES)
        to = memory.dout.index(at.stage)
        tma.async_copy_global_to_shared(dout, work.own.q_box(i_h, row), ready, to)
        at = at.next()
        i_h, i_m = work.next(i_h, i_m)


@gluon.jit
def _query_grads(ds, k, none, I_CONSUMER: gl.constexpr):
    """A consumer's half of dq: of the rows, or of 64 rows half of the columns."""
    if ds.shape[1] == 128:
        left = ds.slice(I_CONSUMER * ROWS, ROWS, 1).permute((1, 0))
        product = warpgroup_mma(left, k, none, use_acc=False, is_async=True)
    else:
        right = k.slice(I_CONSUMER * ROWS, ROWS, 1)
        product = warpgroup_mma(ds.permute((1, 0)), right, none, use_acc=False, is_async=True)
    return product


@gluon.jit
def _consume(
    dq, dk, dv, memory, work, scale, scale_log2, v_most, k_most, I_CONSUMER: gl.constexpr
):  # fmt: skip
    BLOCK_M: gl.constexpr = work.BLOCK_M
    BLOCK_N: gl.constexpr = work.BLOCK_N
    HEAD_DIM: gl.constexpr = work.HEAD_DIM
    DTYPE: gl.constexpr = work.DTYPE
    OWN: gl.constexpr = I_CONSUMER * ROWS
    OTHER: gl.constexpr = 1 - I_CONSUMER
    # A warpgroup has 64 keys, and of dq half of the rows or of the columns: 64 of both.
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_M, 16])
    KV_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    DQ_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, ROWS, 16])
    LEFT: gl.constexpr = gl.DotOperandLayout(0, KV_LAYOUT, 2)
    own_k = memory.k.index(0).reshape([BLOCK_N, HEAD_DIM]).slice(OWN, ROWS, 0)
    some = work.steps > 0
    at = Cursor(gl.to_tensor(0), gl.to_tensor(0), work.STAGES)
    b_dk = gl.zeros([ROWS, HEAD_DIM], gl.float32, KV_LAYOUT)
    b_dv = gl.zeros([ROWS, HEAD_DIM], gl.float32, KV_LAYOUT)
    no_s = gl.zeros([ROWS, BLOCK_M], gl.float32, S_LAYOUT)
    no_dq = gl.zeros([ROWS, ROWS], gl.float32, DQ_LAYOUT)
    mbarrier.wait(memory.kv_full.index(0), 0, pred=some)
    mbarrier.wait(memory.q_full.index(0), 0, pred=some)
    b_q = memory.q.index(0).reshape([BLOCK_M, HEAD_DIM])
    s = warpgroup_mma(own_k, b_q.permute((1, 0)), no_s, use_acc=False, is_async=True)
    mbarrier.wait(memory.kv_full.index(1), 0, pred=some)
    s = warpgroup_mma_wait(0, deps=[s])
    FIRST: gl.constexpr = OWN if BLOCK_M == 128 else 0
    COLUMN: gl.constexpr = 0 if BLOCK_M == 128 else OWN
    unit = gl.zeros([ROWS], gl.float32, gl.SliceLayout(1, DQ_LAYOUT))
    row = gl.to_tensor(0)
    i_h = work.i_kv * work.heads_per_kv
    i_m = work.shift
    for i in range(work.steps):
        # Always 0, which the compiler cannot know: else it would keep, and spill, the addresses of
        # all parts of what does not change from step to step.
        zero = i >> 30
        k = memory.k.index(zero).reshape([BLOCK_N, HEAD_DIM])
        v = memory.v.index(zero).reshape([BLOCK_N, HEAD_DIM])
        b_ds = memory.ds.index(i & 1)
        b_q = memory.q.index(at.stage).reshape([BLOCK_M, HEAD_DIM])
        b_dout = memory.dout.index(at.stage).reshape([BLOCK_M, HEAD_DIM])
        mbarrier.wait(memory.dout_full.index(at.stage), at.phase)
        own_v = v.slice(OWN, ROWS, 0)
        dp = warpgroup_mma(own_v, b_dout.permute((1, 0)), no_s, use_acc=False, is_async=True)
        masked = False
        if not work.EVEN:
            masked = (work.i_n + 1) * BLOCK_N > work.seqlen_k
        if work.CAUSAL:
            diagonal = (work.first + i_m) * BLOCK_M + work.causal_offset
            masked = masked | ((work.i_n + 1) * BLOCK_N - 1 > diagonal)
        if work.WINDOW:
            last = (work.first + i_m + 1) * BLOCK_M - 1
            masked = masked | (work.i_n * BLOCK_N < last + work.left_offset)
        if masked:
            s = mask(s, (work.first + i_m) * BLOCK_M, zero, work, OWN)
        lse = memory.rows.index(at.stage * 3).load(gl.SliceLayout(0, S_LAYOUT))
        p = gl.exp2(s * scale_log2 - lse[None, :])
        packed = pack(p, DTYPE)
        b_dv = warpgroup_mma(unpack(packed, DTYPE, LEFT), b_dout, b_dv, is_async=True)
        dp = warpgroup_mma_wait(1, deps=[dp])
        delta = memory.rows.index(at.stage * 3 + 1).load(gl.SliceLayout(0, S_LAYOUT))
        ds = times(p, unpack(packed, DTYPE, S_LAYOUT), dp - delta[None, :])
        if i > 0:
            _meet("sync", READ + 2 * I_CONSUMER + (i & 1), 8, 4)
        b_ds.slice(OWN, ROWS, 0).store(ds)
        fence_async_shared()
        _meet("arrive", FULL + 2 * I_CONSUMER + (i & 1), 8, 4)
        # dq of the step before: the other consumer may be a step ahead or late. The first product
        # is of nothing, and not used.
        if i > 0:
            _meet("sync", FULL + 2 * OTHER + (i + 1 & 1), 8, 4)
        next_at = at.next()
        b_dq = _query_grads(memory.ds.index(i + 1 & 1), k, no_dq, I_CONSUMER)
        # Only here, so that dq follows dv at once; s needs the registers.
        b_dv = warpgroup_mma_wait(1, deps=[b_dv])
        # After the last step there is no next block: its product is never used.
        mbarrier.wait(memory.q_full.index(next_at.stage), next_at.phase, pred=i + 1 < work.steps)
        next_q = memory.q.index(next_at.stage).reshape([BLOCK_M, HEAD_DIM])
        own_k = k.slice(OWN, ROWS, 0)
        s = warpgroup_mma(own_k, next_q.permute((1, 0)), no_s, use_acc=False, is_async=True)
        b_dq = warpgroup_mma_wait(1, deps=[b_dq])
        if i + 1 < work.steps:
            _meet("arrive", READ + 2 * OTHER + (i + 1 & 1), 8, 4)
        # Triton puts a barrier after it, which a stage of ds needs as well.
        tma.store_wait(0)
        if i > 0:
            add(dq, [row + FIRST, COLUMN], memory.dq.index(I_CONSUMER), b_dq * unit[:, None])
        # Only here: a warp waits to start a product while others are queued.
        b_dk = warpgroup_mma(gl.convert_layout(ds, LEFT), b_q, b_dk, is_async=True)
        unit = units(memory.rows, at.stage, FIRST, v_most, k_most, DQ_LAYOUT)
        row = work.row(i_h, i_m)
        s, b_dk = warpgroup_mma_wait(0, deps=[s, b_dk])
        if i + work.STAGES < work.steps:
            _meet("arrive", EMPTY + at.stage, 9, 4)
        at = next_at
        i_h, i_m = work.next(i_h, i_m)
    if some:
        last = work.steps + 1 & 1
        _meet("sync", FULL + 2 * OTHER + last, 8, 4)
        k = memory.k.index(0).reshape([BLOCK_N, HEAD_DIM])
        b_dq = _query_grads(memory.ds.index(last), k, no_dq, I_CONSUMER)
        b_dq = warpgroup_mma_wait(0, deps=[b_dq])
        tma.store_wait(0)
        add(dq, [row + FIRST, COLUMN], memory.dq.index(I_CONSUMER), b_dq * unit[:, None])
    _meet("sync", END, 8, 4)
    memory.v.index(0).reshape([BLOCK_N, HEAD_DIM]).slice(OWN, ROWS, 0).store(b_dv.to(DTYPE))
    b_dk *= scale
    memory.k.index(0).reshape([BLOCK_N, HEAD_DIM]).slice(OWN, ROWS, 0).store(b_dk.to(DTYPE))
    fence_async_shared()
    _meet("sync", END, 8, 4)
    if I_CONSUMER == 0:
        row = work.i_n * BLOCK_N
        tma.async_copy_shared_to_global(dv, work.own.k_box(work.i_kv, row), memory.v.index(0))
        tma.async_copy_shared_to_global(dk, work.own.k_box(work.i_kv, row), memory.k.index(0))
    tma.store_wait(0)


@gluon.jit(do_not_specialize=SIZES)
def attention_backward_hopper(
    q,
    k,
    v,
    dout,
    rows,
    bounds,
    dq,
    dk,
    dv,
    tiles,
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
    EVEN: gl.constexpr,
    BLOCKS: gl.constexpr,
):
    """Row i sees key j when j < seqlen_k, with CAUSAL j <= i + causal_offset, and j >= i +
    left_offset unless that is None, which wants CAUSAL.

    q, k, v, dout, dk, dv: (batch, heads, seqlen, head_dim) as descriptors of one head's boxes.
    rows: fp32 (3 * batch * heads * padded seqlen_q): log-sum-exps in base 2, deltas, units.
    dq: int32 (batch * heads * padded seqlen_q, HEAD_DIM), added to.
    ``tiles`` is None, or lists the blocks of keys of packed sequences (hopper/packed/tiles.py):
    then all but rows, bounds and dq are ragged descriptors, batch counts them, seqlen_q and
    seqlen_k are the sums of all, and causal_offset counts from each one's bottom-right corner;
    hopper/packed/places.py tells where each one's rows and bounds stand.
    """
    PACKED: gl.constexpr = tiles is not None
    gdc_wait()
    gdc_launch_dependents()
    if PACKED:
        # What stands behind the last listed block is read and not used: that program has no keys.
        at = tiles + (1 + gl.program_id(0)) * FIELDS
        exists = gl.program_id(0) < gl.load(tiles)
        i_n = gl.where(exists, gl.load(at + 1), 0)
        i_bh = gl.where(exists, gl.load(at), 0)
        i_b = gl.load(at + 7)
        k_at = gl.where(exists, gl.load(at + 3), 0)
        q_at = gl.load(at + 5)
        own_k = gl.where(exists, gl.load(at + 4), 0)
        own_q = gl.where(exists, gl.maximum(gl.load(at + 6), 0), 0)
        n_k = seqlen_k // BLOCK_N + batch
        first_bound = i_bh * n_k + (k_at - own_k) // BLOCK_N + i_b
        n_k = n_k * kv_heads
        padded_q = (seqlen_q // BLOCK_M + batch) * BLOCK_M
        start = ((q_at - own_q) // BLOCK_M + i_b) * BLOCK_M
        all_rows = heads * padded_q
        causal_offset = causal_offset + own_k - own_q
        own = Sequence(q_at, k_at, own_q, own_k, causal_offset, causal_offset, True)
        seqlen_q = own_q
        seqlen_k = own_k
        n_n = gl.cdiv(seqlen_k, BLOCK_N)
    else:
        n_n = gl.cdiv(seqlen_k, BLOCK_N)
        i_n, i_bh = in_order(n_n, batch, kv_heads, heads_together, False)
    o_bound = gl.arange(0, BLOCKS, gl.BlockedLayout([1], [32], [4], [0]))
    p_bound = bounds + (first_bound if PACKED else i_bh * n_n) + o_bound
    k_most = gl.max(gl.load(p_bound, mask=o_bound < n_n, other=0.0), 0)
    p_bound += n_k if PACKED else batch * kv_heads * n_n
    v_most = gl.max(gl.load(p_bound, mask=o_bound < n_n, other=0.0), 0)
    if not PACKED:
        padded_q = gl.cdiv(seqlen_q, BLOCK_M) * BLOCK_M
    n_m = gl.cdiv(seqlen_q, BLOCK_M)
    first = 0
    shift = 0
    if CAUSAL:
        first = gl.minimum(gl.maximum(i_n * BLOCK_N - causal_offset, 0) // BLOCK_M, n_m)
    else:
        shift = i_n * n_m // (gl.maximum(n_n, 1) if PACKED else n_n)
    blocks = n_m - first
    if left_offset is not None:
        end = gl.minimum(gl.maximum((i_n + 1) * BLOCK_N - left_offset, 0), seqlen_q)
        blocks = gl.maximum(gl.cdiv(end, BLOCK_M) - first, 0)
    heads_per_kv = heads // kv_heads
    if not PACKED:
        i_b = i_bh // kv_heads
        own = Sequence(i_b, i_b, seqlen_q, seqlen_k, causal_offset, causal_offset, False)
        start = gl.to_tensor(0)
        all_rows = batch * heads * padded_q
    work = Work(
        own, start, i_bh // kv_heads, i_bh % kv_heads, i_n, gl.to_tensor(first), blocks,
        blocks * heads_per_kv, gl.to_tensor(shift), heads, heads_per_kv, padded_q, all_rows,
        seqlen_k, causal_offset, causal_offset if left_offset is None else left_offset,
        BLOCK_M, BLOCK_N, HEAD_DIM, STAGES, CAUSAL, EVEN, left_offset is not None, q.dtype,
    )  # fmt: skip
    one: gl.constexpr = [1]
    stages: gl.constexpr = [STAGES] + q.block_shape  # noqa: RUF005
    memory = Memory(
        gl.allocate_shared_memory(k.dtype, one + k.block_shape, k.layout),
        gl.allocate_shared_memory(v.dtype, one + v.block_shape, v.layout),
        gl.allocate_shared_memory(q.dtype, stages, q.layout),
        gl.allocate_shared_memory(q.dtype, stages, dout.layout),
        gl.allocate_shared_memory(gl.float32, [STAGES * 3, BLOCK_M], rows.layout),
        gl.allocate_shared_memory(
            q.dtype,
            [2, BLOCK_N, BLOCK_M],
            gl.NVMMASharedLayout.get_default_for([BLOCK_N, BLOCK_M], q.dtype),
        ),
        gl.allocate_shared_memory(dq.dtype, [2] + dq.block_shape, dq.layout),  # noqa: RUF005
        barriers(2, 1),
        barriers(STAGES, 1),
        barriers(STAGES, 1),
    )
    fence_async_shared()
    consumed = (dq, dk, dv, memory, work, scale, scale_log2, v_most, k_most)
    specialise(_consume, consumed, _produce, (q, k, v, dout, rows, memory, work), 2)
