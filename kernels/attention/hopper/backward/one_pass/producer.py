"""The memory that warps of the one-pass gradients share, and the warp that fills it, in Gluon.

Aggregates read their annotations when they are built, so nothing here postpones them.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

from kernels.attention.hopper.backward.one_pass.order import most
from kernels.device.aggregates import aggregate
from kernels.device.hopper_rings import bring


@aggregate
class Memory:
    """Tiles that the producer fills, and tiles that pass through shared memory.

    A stage holds Q, dO and the rows' log-sum-exp, delta and norm of dO (``rows``, 3 a stage); Q and
    ``rows`` are announced by ``q_full``, dO by ``dout_full``. There is a second tile of K, for the
    next block. ``most`` has for each the largest element of its head's K and norm of V, announced
    with V by ``v_full``. ``ds`` has two stages: a consumer writes one while the other still
    multiplies by that of the step before. Of ``dq`` each consumer has a tile, through which dv and
    dk go as well. Else named barriers say what is ready (``meet_at``).
    """

    k: gl.shared_memory_descriptor
    v: gl.shared_memory_descriptor
    q: gl.shared_memory_descriptor
    dout: gl.shared_memory_descriptor
    rows: gl.shared_memory_descriptor
    ds: gl.shared_memory_descriptor
    dq: gl.shared_memory_descriptor
    most: gl.shared_memory_descriptor
    k_full: gl.shared_memory_descriptor
    v_full: gl.shared_memory_descriptor
    q_full: gl.shared_memory_descriptor
    dout_full: gl.shared_memory_descriptor


# Named barriers; Triton itself uses 0 to 3. Of FULL and READ each consumer has one of each stage of
# ds, EMPTY is of each stage of Q. KV_EMPTY: V is read, and so is K of the block before.
FULL = gl.constexpr(4)
READ = gl.constexpr(8)
EMPTY = gl.constexpr(12)
KV_EMPTY = gl.constexpr(15)
STAGES = gl.constexpr(2)  # of Q and dO, and of ds; ``step & 1`` relies on it


@gluon.constexpr_function
def _named_barrier(operation, warps):
    """PTX of a barrier of so many warps."""
    return f"bar.{operation} $1, {32 * warps}; mov.b32 $0, 0;"


@gluon.jit
def meet_at(OPERATION: gl.constexpr, number, WARPS: gl.constexpr, OWN: gl.constexpr):
    """Say so to those who wait at a named barrier of WARPS warps (arrive), or wait there (sync);
    OWN of them come from here. An mbarrier would cost consumers a barrier among themselves."""
    ONE_A_THREAD: gl.constexpr = gl.BlockedLayout([1], [32], [OWN], [0])
    barrier = gl.full([32 * OWN], 0, gl.int32, ONE_A_THREAD) + number
    ASM: gl.constexpr = _named_barrier(OPERATION, WARPS)
    gl.inline_asm_elementwise(ASM, "=r,r", [barrier], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def _copy_queries(q, rows, memory, work, step, i_h, i_m):
    """Bring Q of a step, and its rows' numbers, once its stage is free."""
    stage = step & 1
    if step >= STAGES:
        meet_at("sync", EMPTY + stage, 9, 1)
    ready = memory.q_full.index(stage)
    mbarrier.expect(ready, work.BLOCK_M * work.HEAD_DIM * 2 + work.BLOCK_M * 4 * 3)
    at = work.own.q_box(i_h, (work.first + i_m) * work.BLOCK_M)
    tma.async_copy_global_to_shared(q, at, ready, memory.q.index(stage))
    # Log-sum-exps, deltas and norms of all rows of the problem follow each other.
    i_row = work.row(i_h, i_m)
    for j in gl.static_range(3):
        to = memory.rows.index(stage * 3 + j)
        tma.async_copy_global_to_shared(rows, [j * work.all_rows + i_row], ready, to)


@gluon.jit
def _copy_gradients(dout, memory, work, step, i_h, i_m):
    """Bring dO of a step whose Q was requested."""
    BYTES: gl.constexpr = work.BLOCK_M * work.HEAD_DIM * 2
    at = work.own.q_box(i_h, (work.first + i_m) * work.BLOCK_M)
    bring(dout, at, memory.dout_full.index(step & 1), memory.dout.index(step & 1), BYTES)


@gluon.jit
def produce(q, k, v, dout, rows, bounds, tiles, memory, order):
    KV_BYTES: gl.constexpr = order.BLOCK_N * order.HEAD_DIM * 2
    ONE: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    step = gl.to_tensor(0)
    n = gl.to_tensor(0)
    before = gl.to_tensor(STAGES + 1)
    for i_turn in range(order.turns(tiles)):
        work = order.work(i_turn, tiles)
        i_h = work.i_kv * work.heads_per_kv
        i_m = work.shift
        if work.steps > 0:
            # After more than STAGES steps the first one was given back, and with it the keys of the
            # block before.
            has_room = before > STAGES
            if not has_room:
                meet_at("sync", KV_EMPTY, 9, 1)
            at = work.own.k_box(work.i_kv, work.i_n * work.BLOCK_N)
            bring(k, at, memory.k_full.index(n & 1), memory.k.index(n & 1), KV_BYTES)
            _copy_queries(q, rows, memory, work, step, i_h, i_m)
            if has_room & (n > 0):
                meet_at("sync", KV_EMPTY, 9, 1)
            bring(v, at, memory.v_full.index(0), memory.v.index(0), KV_BYTES)
            _copy_gradients(dout, memory, work, step, i_h, i_m)
            first, count, apart = order.first_bound(work)
            for j in gl.static_range(2):
                found = most(bounds + first + j * apart, count)
                number = gl.full([1], 0.0, gl.float32, ONE) + found
                memory.most.index((n & 1) * 2 + j).store(number)
            mbarrier.arrive(memory.v_full.index(0))
            step += 1
            n += 1
            before = work.steps
            i_h, i_m = work.next(i_h, i_m)
        for _ in range(1, work.steps):
            _copy_queries(q, rows, memory, work, step, i_h, i_m)
            _copy_gradients(dout, memory, work, step, i_h, i_m)
            step += 1
            i_h, i_m = work.next(i_h, i_m)
    # After the last step consumers start a product more, which nobody uses. No barrier is left with
    # arrivals: a stage gives back its last step.
    if step >= STAGES:
        meet_at("sync", EMPTY + (step & 1), 9, 1)
    mbarrier.arrive(memory.q_full.index(step & 1))
    mbarrier.arrive(memory.k_full.index(n & 1))
    if step > 0:
        meet_at("sync", EMPTY + (step + 1 & 1), 9, 1)
        meet_at("sync", KV_EMPTY, 9, 1)
