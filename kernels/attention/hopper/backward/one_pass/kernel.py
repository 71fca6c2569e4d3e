"""The attention backward pass of Hopper GPUs in Gluon: a producer warp, two consumer warpgroups.

A program stays on its multiprocessor and takes blocks of keys; of each it walks the queries that
see it. Scores are transposed, keys by queries. So the weights and their gradients are left operands
in registers for dv and dk. Only the scores' gradients pass through shared memory, to be multiplied
by the keys. Many programs add to the gradients of one query. They add in fixed point, where sums
are the same in any order (hopper/backward/row_stats.py says how). So gradients are the same bits at
every run.

The steps of all blocks follow each other. The last one of a block starts the first scores of the
next. dq of a step is multiplied in the step after it, also across blocks.

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

from kernels.attention.hopper.backward.block import mask
from kernels.attention.hopper.backward.one_pass.order import Order
from kernels.attention.hopper.backward.one_pass.producer import (
    EMPTY,
    FULL,
    KV_EMPTY,
    READ,
    STAGES,
    Memory,
    meet_at,
    produce,
)
from kernels.attention.hopper.backward.one_pass.sums import add, units
from kernels.attention.hopper.tile_order import SIZES
from kernels.attention.hopper.weight_pairs import pack, times, unpack
from kernels.device.hopper_rings import ROWS, barriers, partition_barrier, specialise


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
def _last_query_grads(
    dq, memory, order, row, unit, step, n, DQ_LAYOUT: gl.constexpr, I_CONSUMER: gl.constexpr
):  # fmt: skip
    """Add those of the last step, with the keys of the block before the n-th."""
    meet_at("sync", FULL + 2 * (1 - I_CONSUMER) + (step + 1 & 1), 8, 4)
    k = memory.k.index(n + 1 & 1).reshape([order.BLOCK_N, order.HEAD_DIM])
    no_dq = gl.zeros([ROWS, ROWS], gl.float32, DQ_LAYOUT)
    b_dq = _query_grads(memory.ds.index(step + 1 & 1), k, no_dq, I_CONSUMER)
    b_dq = warpgroup_mma_wait(0, deps=[b_dq])
    tma.store_wait(0)
    FIRST: gl.constexpr = I_CONSUMER * ROWS if order.BLOCK_M == 128 else 0
    COLUMN: gl.constexpr = 0 if order.BLOCK_M == 128 else I_CONSUMER * ROWS
    add(dq, [row + FIRST, COLUMN], memory.dq.index(I_CONSUMER), b_dq * unit[:, None])


@gluon.jit
def _consume(dq, dk, dv, tiles, memory, order, scale, scale_log2, I_CONSUMER: gl.constexpr):
    BLOCK_M: gl.constexpr = order.BLOCK_M
    BLOCK_N: gl.constexpr = order.BLOCK_N
    HEAD_DIM: gl.constexpr = order.HEAD_DIM
    DTYPE: gl.constexpr = order.DTYPE
    OWN: gl.constexpr = I_CONSUMER * ROWS
    OTHER: gl.constexpr = 1 - I_CONSUMER
    # A warpgroup has 64 keys, and of dq half of the rows or of the columns: 64 of both.
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_M, 16])
    KV_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    DQ_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, ROWS, 16])
    LEFT: gl.constexpr = gl.DotOperandLayout(0, KV_LAYOUT, 2)
    step = gl.to_tensor(0)
    n = gl.to_tensor(0)
    no_s = gl.zeros([ROWS, BLOCK_M], gl.float32, S_LAYOUT)
    no_dq = gl.zeros([ROWS, ROWS], gl.float32, DQ_LAYOUT)
    own_dq = memory.dq.index(I_CONSUMER)
    mbarrier.wait(memory.k_full.index(0), 0)
    mbarrier.wait(memory.q_full.index(0), 0)
    own_k = memory.k.index(0).reshape([BLOCK_N, HEAD_DIM]).slice(OWN, ROWS, 0)
    b_q = memory.q.index(0).reshape([BLOCK_M, HEAD_DIM])
    s = warpgroup_mma(own_k, b_q.permute((1, 0)), no_s, use_acc=False, is_async=True)
    s = warpgroup_mma_wait(0, deps=[s])
    FIRST: gl.constexpr = OWN if BLOCK_M == 128 else 0
    COLUMN: gl.constexpr = 0 if BLOCK_M == 128 else OWN
    unit = gl.zeros([ROWS], gl.float32, gl.SliceLayout(1, DQ_LAYOUT))
    row = gl.to_tensor(-1)  # of the step before, if its dq is still to be multiplied
    work = order.work(0, tiles)
    for i_turn in range(order.turns(tiles)):
        b_dk = gl.zeros([ROWS, HEAD_DIM], gl.float32, KV_LAYOUT)
        b_dv = gl.zeros([ROWS, HEAD_DIM], gl.float32, KV_LAYOUT)
        first_row = work.row(work.i_kv * work.heads_per_kv, 0)
        i_m = work.shift
        # From here on the block's first key and its head's first row that sees it are the zeroth.
        keys = work.seqlen_k - work.i_n * BLOCK_N
        from_here = work.i_n * BLOCK_N - work.first * BLOCK_M
        after = from_here - work.causal_offset
        until = from_here - work.left_offset
        mbarrier.wait(memory.v_full.index(0), n & 1, pred=work.steps > 0)
        for i in range(work.steps):
            # Always 0, which the compiler cannot know: else it would keep, and spill, the addresses
            # of all parts of what does not change from step to step.
            zero = i >> 30
            v = memory.v.index(zero).reshape([BLOCK_N, HEAD_DIM])
            stage = step & 1
            other = 1 - stage
            b_ds = memory.ds.index(stage)
            b_q = memory.q.index(stage).reshape([BLOCK_M, HEAD_DIM])
            b_dout = memory.dout.index(stage).reshape([BLOCK_M, HEAD_DIM])
            mbarrier.wait(memory.dout_full.index(stage), (step >> 1) & 1)
            own_v = v.slice(OWN, ROWS, 0)
            dp = warpgroup_mma(own_v, b_dout.permute((1, 0)), no_s, use_acc=False, is_async=True)
            masked = False
            if not work.EVEN:
                masked = keys < BLOCK_N
            if work.CAUSAL:
                masked = masked | (after + (BLOCK_N - 1) > i_m * BLOCK_M)
            if work.WINDOW:
                masked = masked | (until < (i_m + 1) * BLOCK_M - 1)
            if masked:
                i_first = i_m * BLOCK_M
                s = mask(
                    s, after - i_first, until - i_first, keys, zero, work.CAUSAL, work.WINDOW, OWN
                )
            lse = memory.rows.index(stage * 3).load(gl.SliceLayout(0, S_LAYOUT))
            p = gl.exp2(s * scale_log2 - lse[None, :])
            packed = pack(p, DTYPE)
            b_dv = warpgroup_mma(unpack(packed, DTYPE, LEFT), b_dout, b_dv, is_async=True)
            dp = warpgroup_mma_wait(1, deps=[dp])
            is_last = i + 1 == work.steps
            if is_last:
                meet_at("arrive", KV_EMPTY, 9, 4)
            delta = memory.rows.index(stage * 3 + 1).load(gl.SliceLayout(0, S_LAYOUT))
            ds = times(p, unpack(packed, DTYPE, S_LAYOUT), dp - delta[None, :])
            if step > 0:
                meet_at("sync", READ + 2 * I_CONSUMER + stage, 8, 4)
            b_ds.slice(OWN, ROWS, 0).store(ds)
            fence_async_shared()
            meet_at("arrive", FULL + 2 * I_CONSUMER + stage, 8, 4)
            # dq of the step before, perhaps of the block of keys before: the other consumer may be
            # a step ahead or late. The first product is of nothing, and not used.
            if row >= 0:
                meet_at("sync", FULL + 2 * OTHER + other, 8, 4)
            k = memory.k.index(gl.where(i > 0, n, n + 1) & 1).reshape([BLOCK_N, HEAD_DIM])
            b_dq = _query_grads(memory.ds.index(other), k, no_dq, I_CONSUMER)
            # Only here, so that dq follows dv at once; s needs the registers.
            b_dv = warpgroup_mma_wait(1, deps=[b_dv])
            # Of the next block of keys after the last step.
            next_n = gl.where(is_last, n + 1, n)
            mbarrier.wait(memory.k_full.index(next_n & 1), (next_n >> 1) & 1)
            mbarrier.wait(memory.q_full.index(other), ((step + 1) >> 1) & 1)
            next_q = memory.q.index(other).reshape([BLOCK_M, HEAD_DIM])
            own_k = memory.k.index(next_n & 1).reshape([BLOCK_N, HEAD_DIM]).slice(OWN, ROWS, 0)
            s = warpgroup_mma(own_k, next_q.permute((1, 0)), no_s, use_acc=False, is_async=True)
            b_dq = warpgroup_mma_wait(1, deps=[b_dq])
            meet_at("arrive", READ + 2 * OTHER + other, 8, 4)
            # Triton puts a barrier after it, which a stage of ds needs as well.
            tma.store_wait(0)
            if row >= 0:
                add(dq, [row + FIRST, COLUMN], own_dq, b_dq * unit[:, None])
            # Only here: a warp waits to start a product while others are queued.
            b_dk = warpgroup_mma(gl.convert_layout(ds, LEFT), b_q, b_dk, is_async=True)
            unit = units(memory.rows, stage, FIRST, memory.most, (n & 1) * 2, DQ_LAYOUT)
            row = first_row + i_m * BLOCK_M
            s, b_dk = warpgroup_mma_wait(0, deps=[s, b_dk])
            meet_at("arrive", EMPTY + stage, 9, 4)
            step += 1
            next_head, i_m = work.next(0, i_m)
            first_row += next_head * work.padded_q
        # Divisions overlap with the stores of the output.
        following = order.work(i_turn + 1, tiles)
        if work.steps >= 0:
            # dq's tile, which the engine has read, takes both to where they belong. As ``zero`` the
            # shifted number is 0: its addresses would be kept through all steps.
            tma.store_wait(0)
            at_k = work.own.k_box(work.i_kv, work.i_n * BLOCK_N + OWN)
            shape: gl.constexpr = [128 // HEAD_DIM] + dv.block_shape  # noqa: RUF005
            to = memory.dq.index(I_CONSUMER + (i_turn >> 30))
            to = to._reinterpret(DTYPE, shape, dv.layout)
            to.index(0).reshape([ROWS, HEAD_DIM]).store(b_dv.to(DTYPE))
            if HEAD_DIM == 64:
                to.index(1).reshape([ROWS, HEAD_DIM]).store((b_dk * scale).to(DTYPE))
            fence_async_shared()
            partition_barrier()
            tma.async_copy_shared_to_global(dv, at_k, to.index(0))
            if HEAD_DIM != 64:
                tma.store_wait(0)
                to.index(0).reshape([ROWS, HEAD_DIM]).store((b_dk * scale).to(DTYPE))
                fence_async_shared()
                partition_barrier()
            if not order.PACKED:
                # As in hopper/backward/short/key_grads.py: copies to the same place would share
                # registers, of which some would be spilled from block to block.
                at_k = [work.i_kv, work.i_b, work.i_n * BLOCK_N + OWN, 0]
            tma.async_copy_shared_to_global(dk, at_k, to.index(128 // HEAD_DIM - 1))
            n += gl.where(work.steps > 0, 1, 0)
        work = following
        # After the last block; and the only step of a block has to free the keys of the block
        # before for those of the next.
        if (work.steps < 2) & (row >= 0):
            _last_query_grads(dq, memory, order, row, unit, step, n, DQ_LAYOUT, I_CONSUMER)
            row = row * 0 - 1
    if step > 0:
        # No barrier is left with arrivals.
        meet_at("sync", READ + 2 * I_CONSUMER + (step & 1), 8, 4)
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
    scale,
    scale_log2,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    HEAD_DIM: gl.constexpr,
    CAUSAL: gl.constexpr,
    EVEN: gl.constexpr,
):
    """Row i sees key j when j < seqlen_k, with CAUSAL j <= i + causal_offset, and j >= i +
    left_offset unless that is None, which wants CAUSAL.

    q, k, v, dout, dv: (batch, heads, seqlen, head_dim) as descriptors of one head's boxes; dk:
    (heads, batch, seqlen, head_dim), of packed sequences as the others.
    rows: fp32 (3 * batch * heads * padded seqlen_q): log-sum-exps in base 2, deltas, norms of dO.
    dq: int32 (batch * heads * padded seqlen_q, HEAD_DIM), added to.
    ``tiles`` is None, or lists the blocks of keys of packed sequences (hopper/packed/tiles.py):
    then all but rows, bounds and dq are ragged descriptors, batch counts them, seqlen_q and
    seqlen_k are the sums of all, and causal_offset counts from each one's bottom-right corner;
    hopper/packed/places.py says where each one's rows and bounds stand.
    """
    gdc_wait()
    gdc_launch_dependents()
    WINDOW: gl.constexpr = left_offset is not None
    PACKED: gl.constexpr = tiles is not None
    order = Order(
        heads, kv_heads, batch, seqlen_q, seqlen_k, causal_offset,
        left_offset if WINDOW else causal_offset, BLOCK_M, BLOCK_N, HEAD_DIM, CAUSAL, EVEN,
        WINDOW, PACKED, CAUSAL and not WINDOW, q.dtype,
    )  # fmt: skip
    one: gl.constexpr = [1]
    two: gl.constexpr = [2]
    stages: gl.constexpr = [STAGES] + q.block_shape  # noqa: RUF005
    memory = Memory(
        gl.allocate_shared_memory(k.dtype, two + k.block_shape, k.layout),
        gl.allocate_shared_memory(v.dtype, one + v.block_shape, v.layout),
        gl.allocate_shared_memory(q.dtype, stages, q.layout),
        gl.allocate_shared_memory(q.dtype, stages, dout.layout),
        gl.allocate_shared_memory(gl.float32, [STAGES * 3, BLOCK_M], rows.layout),
        gl.allocate_shared_memory(
            q.dtype,
            [2, BLOCK_N, BLOCK_M],
            gl.NVMMASharedLayout.get_default_for([BLOCK_N, BLOCK_M], q.dtype),
        ),
        gl.allocate_shared_memory(dq.dtype, two + dq.block_shape, dq.layout),
        gl.allocate_shared_memory(gl.float32, [4, 1], gl.SwizzledSharedLayout(1, 1, 1, [0])),
        barriers(2, 1),
        barriers(1, 2),
        barriers(STAGES, 1),
        barriers(STAGES, 1),
    )
    fence_async_shared()
    specialise(
        _consume, (dq, dk, dv, tiles, memory, order, scale, scale_log2),
        produce, (q, k, v, dout, rows, bounds, tiles, memory, order), 2,
    )  # fmt: skip
