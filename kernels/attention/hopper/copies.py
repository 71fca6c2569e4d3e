"""What Hopper's attention forward pass copies into shared memory, and who asks for it (Gluon).

Aggregates read their annotations when they are built, so nothing here postpones them.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import tma

from kernels.device.aggregates import aggregate
from kernels.device.hopper_rings import ROWS, Ring, bring


@aggregate
class Memory:
    """The rings the producer fills, and where each consumer leaves its output to be copied."""

    q: Ring
    k: Ring
    v: Ring
    out: gl.shared_memory_descriptor


@gluon.jit
def produce(q, k, v, tiles, memory, problem):
    q_ring = memory.q
    k_ring = memory.k
    v_ring = memory.v
    VALUE: gl.constexpr = q.dtype.primitive_bitwidth // 8
    Q_BYTES: gl.constexpr = ROWS * problem.HEAD_DIM * VALUE
    KV_BYTES: gl.constexpr = problem.BLOCK_N * problem.HEAD_DIM * VALUE
    q_at = q_ring.first_to_fill()
    k_at = k_ring.first_to_fill()
    v_at = v_ring.first_to_fill()
    if problem.ONCE:
        k_at = k_at.next()
    for i_turn in range(problem.turns(tiles)):
        row, i_h, own, exists, i_b = problem.tile(i_turn, tiles)
        if exists:
            i_kv = i_h // problem.heads_per_kv
            n_blocks, _ = problem.blocks(own, row, problem.BLOCK_M)
            i_first, _ = problem.left_blocks(own, row, n_blocks, problem.BLOCK_M)
            # From the last block to the first: the masked ones come first.
            for i in range(1 if problem.ONCE else 0, n_blocks - i_first + 1):
                if i < n_blocks - i_first:
                    ready = k_ring.acquire(k_at, KV_BYTES)
                    at = own.k_box(i_kv, (n_blocks - 1 - i) * problem.BLOCK_N)
                    tma.async_copy_global_to_shared(k, at, ready, k_ring.memory.index(k_at.stage))
                    k_at = k_at.next()
                if i == 0:
                    for j in gl.static_range(problem.CONSUMERS):
                        ready = q_ring.acquire(q_at, Q_BYTES)
                        at = own.q_box(i_h, row + j * ROWS)
                        to = q_ring.memory.index(q_at.stage)
                        tma.async_copy_global_to_shared(q, at, ready, to)
                        q_at = q_at.next()
                else:
                    ready = v_ring.acquire(v_at, KV_BYTES)
                    # Fp8 values may have fewer coordinates than ``at``.
                    box = problem.v_box(own, i_b, i_kv, (n_blocks - i) * problem.BLOCK_N)
                    tma.async_copy_global_to_shared(v, box, ready, v_ring.memory.index(v_at.stage))
                    v_at = v_at.next()


@gluon.jit
def ask_first(q, k, tiles, memory, problem):
    """Ask for the only tile's Q and first block of keys while the warps are still to part."""
    row, i_h, own, _, _ = problem.tile(0, tiles)
    n_blocks, _ = problem.blocks(own, row, problem.BLOCK_M)
    at = own.k_box(i_h // problem.heads_per_kv, (n_blocks - 1) * problem.BLOCK_N)
    BYTES: gl.constexpr = problem.BLOCK_N * problem.HEAD_DIM * 2
    Q_BYTES: gl.constexpr = ROWS * problem.HEAD_DIM * 2
    bring(k, at, memory.k.full.index(0), memory.k.memory.index(0), BYTES)
    for j in gl.static_range(problem.CONSUMERS):
        at = own.q_box(i_h, row + j * ROWS)
        bring(q, at, memory.q.full.index(j), memory.q.memory.index(j), Q_BYTES)
