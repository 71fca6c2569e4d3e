"""The matmul of rows that begin anywhere in a line of memory, of several tiles a program, in Gluon.

As persistent.py, but a tile has rows of a (and of c) that begin at one place of their lines, and
steps along K end where those lines do: docs/kernels/hopper/matmul.md explains why.

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

from kernels.device.aggregates import aggregate
from kernels.device.hopper_rings import Cursor, specialise
from kernels.matmul.common.epilogue import tile_of_program
from kernels.matmul.hopper.persistent import new_ring
from kernels.matmul.hopper.store import store

CONSUMERS = gl.constexpr(2)


@aggregate
class Problem:
    """Sizes, how they are cut, and where rows of a begin in their lines."""

    M: gl.tensor
    N: gl.tensor
    K: gl.tensor
    a_phase: gl.tensor
    a_pitch: gl.tensor
    CLASSES: gl.constexpr
    ROWS: gl.constexpr
    BLOCK_N: gl.constexpr
    BLOCK_K: gl.constexpr
    GROUP_M: gl.constexpr
    B_MAJOR_N: gl.constexpr

    @gluon.jit
    def rows_of_tiles(self):
        return gl.cdiv(self.M // self.CLASSES, CONSUMERS * self.ROWS) * self.CLASSES

    @gluon.jit
    def tiles(self):
        return self.rows_of_tiles() * gl.cdiv(self.N, self.BLOCK_N)

    @gluon.jit
    def tile(self, i_tile):
        """Where a tile's steps along K begin, its class, its first row in that and its first
        column, in the order of ``hopper_kernel.Problem``."""
        n_tiles_n = gl.cdiv(self.N, self.BLOCK_N)
        i_m, i_n = tile_of_program(i_tile, self.rows_of_tiles(), n_tiles_n, self.GROUP_M)
        i_class = i_m % self.CLASSES
        first = -((self.a_phase + i_class * self.a_pitch) % self.BLOCK_K)
        row = i_m // self.CLASSES * (CONSUMERS * self.ROWS)
        return first, i_class, row, i_n * self.BLOCK_N


@gluon.jit
def _produce(a, b, ring, problem):
    """As ``hopper_kernel.produce``; before the first value of a row the copy engine writes 0."""
    VALUES: gl.constexpr = (CONSUMERS * problem.ROWS + problem.BLOCK_N) * problem.BLOCK_K
    BYTES: gl.constexpr = VALUES * a.dtype.primitive_bitwidth // 8
    at = Cursor(gl.to_tensor(0), gl.to_tensor(1), ring.STAGES)
    for i_tile in range(gl.program_id(0), problem.tiles(), gl.num_programs(0)):
        first, i_class, row, column = problem.tile(i_tile)
        for k in range(first, problem.K, problem.BLOCK_K):
            mbarrier.wait(ring.empty.index(at.stage), at.phase)
            ready = ring.full.index(at.stage)
            mbarrier.expect(ready, BYTES)
            for i in gl.static_range(CONSUMERS):
                to = ring.a.index(at.stage * CONSUMERS + i)
                tma.async_copy_global_to_shared(a, [row + i * problem.ROWS, i_class, k], ready, to)
            to = ring.b.index(at.stage)
            if problem.B_MAJOR_N:
                tma.async_copy_global_to_shared(b, [k, column], ready, to)
            else:
                tma.async_copy_global_to_shared(b, [column, k], ready, to)
            at = at.next()


@gluon.jit
def _consume(c, bias, ring, c_staging, problem, ACTIVATION: gl.constexpr, I_CONSUMER: gl.constexpr):  # fmt: skip  # noqa: E501
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, problem.BLOCK_N, 16])
    at = Cursor(gl.to_tensor(0), gl.to_tensor(0), ring.STAGES)
    for i_tile in range(gl.program_id(0), problem.tiles(), gl.num_programs(0)):
        first, i_class, row, column = problem.tile(i_tile)
        acc = gl.zeros([problem.ROWS, problem.BLOCK_N], gl.float32, LAYOUT)
        for k in range(first, problem.K, problem.BLOCK_K):
            mbarrier.wait(ring.full.index(at.stage), at.phase)
            a = ring.a.index(at.stage * CONSUMERS + I_CONSUMER)
            b = ring.b.index(at.stage)
            if not problem.B_MAJOR_N:
                b = b.permute((1, 0))
            a = a.reshape([problem.ROWS, problem.BLOCK_K])
            acc = warpgroup_mma(a, b, acc, use_acc=k > first, is_async=True)
            # One multiplication stays in flight; the one before is done with its stage.
            acc = warpgroup_mma_wait(1, deps=[acc])
            mbarrier.arrive(ring.empty.index(at.previous_stage()), pred=k > first)
            at = at.next()
        acc = warpgroup_mma_wait(0, deps=[acc])
        mbarrier.arrive(ring.empty.index(at.previous_stage()))
        rows = (row + I_CONSUMER * problem.ROWS, i_class)
        staging = c_staging.index(I_CONSUMER)
        store(c, staging, bias, rows, column, acc, problem.N, ACTIVATION)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["M", "N", "K", "a_phase", "a_pitch"])
def matmul_hopper_lines(
    a,
    b,
    c,
    bias,
    M,
    N,
    K,
    a_phase,
    a_pitch,
    STAGES: gl.constexpr,
    CLASSES: gl.constexpr,
    GROUP_M: gl.constexpr,
    B_MAJOR_N: gl.constexpr,
    ACTIVATION: gl.constexpr,
):
    """c = activation(a @ b + bias); a and c: (M / CLASSES, CLASSES, K or N), b: (N, K) or (K, N).

    Rows of class i begin (a_phase + i * a_pitch) values behind the start of a line of memory."""
    ROWS: gl.constexpr = a.block_shape[0]
    BLOCK_K: gl.constexpr = a.block_shape[2]
    BLOCK_N: gl.constexpr = b.block_shape[1 if B_MAJOR_N else 0]
    problem = Problem(
        M, N, K, a_phase, a_pitch, CLASSES, ROWS, BLOCK_N, BLOCK_K, GROUP_M, B_MAJOR_N
    )
    ring = new_ring(a, b, STAGES, CONSUMERS)
    shape: gl.constexpr = [ROWS, c.block_shape[2]]
    FLAT: gl.constexpr = gl.NVMMASharedLayout.get_default_for(shape, c.dtype)
    c_staging = gl.allocate_shared_memory(c.dtype, [CONSUMERS] + shape, FLAT)  # noqa: RUF005
    fence_async_shared()
    # Constexprs survive only in tuples written in place.
    specialise(
        _consume, (c, bias, ring, c_staging, problem, ACTIVATION),
        _produce, (a, b, ring, problem), CONSUMERS,
    )  # fmt: skip
