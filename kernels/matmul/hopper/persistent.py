"""The matmul of Hopper GPUs in Gluon: one producer warp copies, consumer warpgroups multiply.

A program owns one multiprocessor and walks the tiles of C. Its producer warp keeps a ring of
shared-memory stages full through the bulk copy engine (TMA); every consumer warpgroup multiplies
its 64 rows of the tile with all columns (wgmma) and hands stages back. The design is explained in
docs/kernels/hopper/matmul.md. portable/kernel.py computes the same and is its twin in tests.

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
from triton.language.extra.cuda import gdc_wait

from kernels.device.aggregates import aggregate, computed
from kernels.device.hopper_rings import ROWS, Cursor, barriers, partition_barrier, specialise
from kernels.matmul.common.epilogue import tile_of_program

from .store import bias_buffers, bring_bias, store
from .tf32.sums import tf32_sum


@aggregate
class Problem:
    """Sizes, how they are cut, and which operands are stored transposed. A consumer has ROWS rows
    of a tile. TAIL: 1, or programs walk as many tiles as give each the same number, and of what is
    left at most one a program, a TAIL-th of a tile's columns. CLASSES, ``a_phase`` and ``a_pitch``:
    see ``matmul_hopper``."""

    M: gl.tensor
    N: gl.tensor
    K: gl.tensor
    a_phase: gl.tensor
    a_pitch: gl.tensor
    CLASSES: gl.constexpr
    CONSUMERS: gl.constexpr
    ROWS: gl.constexpr
    BLOCK_M: gl.constexpr = computed("ROWS * CONSUMERS")
    BLOCK_N: gl.constexpr
    BLOCK_K: gl.constexpr
    GROUP_M: gl.constexpr
    A_MAJOR_M: gl.constexpr
    B_MAJOR_N: gl.constexpr
    TAIL: gl.constexpr

    @gluon.jit
    def rows_of_tiles(self):
        if self.CLASSES:
            return gl.cdiv(self.M // self.CLASSES, self.BLOCK_M) * self.CLASSES
        else:
            return gl.cdiv(self.M, self.BLOCK_M)

    @gluon.jit
    def tiles(self):
        return self.rows_of_tiles() * gl.cdiv(self.N, self.BLOCK_N)

    @gluon.jit
    def whole_tiles(self):
        tiles = self.tiles()
        if self.TAIL > 1:
            tiles -= tiles % gl.num_programs(0)
        return tiles

    @gluon.jit
    def has_tail(self):
        return gl.program_id(0) < self.tiles() % gl.num_programs(0) * self.TAIL

    @gluon.jit
    def tail(self):
        """First row and column of the program's part of a tile."""
        row, column = self.tile(self.whole_tiles() + gl.program_id(0) // self.TAIL)
        return row, column + gl.program_id(0) % self.TAIL * (self.BLOCK_N // self.TAIL)

    @gluon.jit
    def indices(self, i_tile):
        n_tiles_m = self.rows_of_tiles()
        n_tiles_n = gl.cdiv(self.N, self.BLOCK_N)
        return tile_of_program(i_tile, n_tiles_m, n_tiles_n, self.GROUP_M)

    @gluon.jit
    def tile(self, i_tile):
        """First row and column of a tile."""
        i_m, i_n = self.indices(i_tile)
        return i_m * self.BLOCK_M, i_n * self.BLOCK_N

    @gluon.jit
    def place(self, i_tile):
        """Where a tile's steps along K begin, its rows in all axes of a and c but the last, and its
        first column."""
        if self.CLASSES:
            i_m, i_n = self.indices(i_tile)
            i_class = i_m % self.CLASSES
            first = -((self.a_phase + i_class * self.a_pitch) % self.BLOCK_K)
            return first, (i_m // self.CLASSES * self.BLOCK_M, i_class), i_n * self.BLOCK_N
        else:
            row, column = self.tile(i_tile)
            return 0, (row,), column

    @gluon.jit
    def own(self, rows, I_CONSUMER: gl.constexpr):
        """Of the rows of a tile those of a consumer."""
        return (rows[0] + I_CONSUMER * self.ROWS,) + rows[1:]  # noqa: RUF005


@aggregate
class Ring:
    """Stages of shared memory for a block of A and one of B, filled and emptied together."""

    a: gl.shared_memory_descriptor
    b: gl.shared_memory_descriptor
    full: gl.shared_memory_descriptor
    empty: gl.shared_memory_descriptor
    STAGES: gl.constexpr


@gluon.jit
def new_ring(a, b, STAGES: gl.constexpr, CONSUMERS: gl.constexpr):
    """A ring of boxes of b, and of as many of a to each as consumers release it."""
    return Ring(
        gl.allocate_shared_memory(a.dtype, [STAGES * CONSUMERS] + a.block_shape, a.layout),  # noqa: RUF005
        gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_shape, b.layout),  # noqa: RUF005
        barriers(STAGES, 1),
        barriers(STAGES, CONSUMERS),
        STAGES,
    )


@gluon.jit
def copy_block(x, at, k, ready, to, K_FIRST: gl.constexpr):
    """Start the copy of a block of A or B, whose rows or columns are ``at``, in all their axes."""
    if K_FIRST:
        tma.async_copy_global_to_shared(x, (k,) + at, ready, to)  # noqa: RUF005
    else:
        tma.async_copy_global_to_shared(x, at + (k,), ready, to)  # noqa: RUF005


@gluon.jit
def _fill(a, b, ring, at, first, rows, column, problem):
    """Copy what a tile as wide as b's boxes multiplies from ``first`` of K on, before which the
    copy engine writes 0; the stage after it."""
    BLOCK_N: gl.constexpr = b.block_shape[1 if problem.B_MAJOR_N else 0]
    VALUES: gl.constexpr = (problem.BLOCK_M + BLOCK_N) * problem.BLOCK_K
    BYTES: gl.constexpr = VALUES * a.dtype.primitive_bitwidth // 8
    for k in range(first, problem.K, problem.BLOCK_K):
        mbarrier.wait(ring.empty.index(at.stage), at.phase)
        ready = ring.full.index(at.stage)
        mbarrier.expect(ready, BYTES)
        for i in gl.static_range(problem.CONSUMERS):
            to = ring.a.index(at.stage * problem.CONSUMERS + i)
            copy_block(a, problem.own(rows, i), k, ready, to, problem.A_MAJOR_M)
        to = _columns(ring.b.index(at.stage), BLOCK_N, problem)
        copy_block(b, (column,), k, ready, to, problem.B_MAJOR_N)
        at = at.next()
    return at


@gluon.jit
def _columns(b, WIDTH: gl.constexpr, problem):
    """Of a stage's block of B the first columns of a tile of so many."""
    if problem.BLOCK_N == WIDTH:
        return b
    else:
        return b.slice(0, WIDTH, 1 if problem.B_MAJOR_N else 0)


@gluon.jit
def produce(a, b, ring, problem, b_tail=None):
    """Keep the ring full of what the program's tiles multiply; ``b_tail``: b by boxes of a part's
    columns."""
    # Nothing is in the ring: the first round waits for nobody.
    at = Cursor(gl.to_tensor(0), gl.to_tensor(1), ring.STAGES)
    for i_tile in range(gl.program_id(0), problem.whole_tiles(), gl.num_programs(0)):
        first, rows, column = problem.place(i_tile)
        at = _fill(a, b, ring, at, first, rows, column, problem)
    if problem.TAIL > 1 and problem.has_tail():
        row, column = problem.tail()
        at = _fill(a, b_tail, ring, at, 0, (row,), column, problem)


@gluon.jit
def _multiply(ring, at, acc, use_acc, I_CONSUMER: gl.constexpr, problem):
    """Wait for one stage and start its multiplication."""
    mbarrier.wait(ring.full.index(at.stage), at.phase)
    a = ring.a.index(at.stage * problem.CONSUMERS + I_CONSUMER)
    b = _columns(ring.b.index(at.stage), acc.shape[1], problem)
    if problem.CLASSES:
        a = a.reshape([problem.ROWS, problem.BLOCK_K])
    if problem.A_MAJOR_M:
        a = a.permute((1, 0))
    if not problem.B_MAJOR_N:
        b = b.permute((1, 0))
    return warpgroup_mma(a, b, acc, use_acc=use_acc, is_async=True)


@gluon.jit
def _sum(ring, at, first, I_CONSUMER: gl.constexpr, WIDTH: gl.constexpr, problem):
    """A consumer's rows of a tile of WIDTH columns, of K from ``first`` on, the last product of
    which is on its way, and the stage after it."""
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    acc = gl.zeros([problem.ROWS, WIDTH], gl.float32, LAYOUT)
    for k in range(first, problem.K, problem.BLOCK_K):
        acc = _multiply(ring, at, acc, k > first, I_CONSUMER, problem)
        # One multiplication stays in flight; the one before is done with its stage.
        acc = warpgroup_mma_wait(1, deps=[acc])
        mbarrier.arrive(ring.empty.index(at.previous_stage()), pred=k > first)
        at = at.next()
    return acc, at


@gluon.jit
def _whole_sum(ring, at, acc):
    """What ``_sum`` began, its last product waited for."""
    acc = warpgroup_mma_wait(0, deps=[acc])
    mbarrier.arrive(ring.empty.index(at.previous_stage()))
    return acc


@gluon.jit
def _ask_residual(residual, staging, landed, row, column, FIRST: gl.constexpr, PARTS: gl.constexpr):  # fmt: skip  # noqa: E501
    """Start the copies of a consumer's rows of the residual into its buffers."""
    STORE_N: gl.constexpr = residual.block_shape[1]
    tma.store_wait(0)  # the last tile's rows have left them
    partition_barrier()
    mbarrier.expect(landed, PARTS * ROWS * STORE_N * residual.dtype.primitive_bitwidth // 8)
    for i in gl.static_range(PARTS):
        at = [row, column + i * STORE_N]
        tma.async_copy_global_to_shared(residual, at, landed, staging.index(FIRST + i))


@gluon.jit
def _consume(c, bias, brought, added, ring, c_staging, problem, ACTIVATION: gl.constexpr, I_CONSUMER: gl.constexpr):  # fmt: skip  # noqa: E501
    """``added``: a residual and a barrier for each consumer's rows of it, or nothing. ``brought``:
    where the bias goes on its way, if there is one."""
    HAS_RESIDUAL: gl.constexpr = len(added) > 0
    IN_TF32: gl.constexpr = c.dtype == gl.float32
    # Where a tile lies is found first: after products of tf32 that would serialise them (C7513).
    PLACED: gl.constexpr = HAS_RESIDUAL or IN_TF32 or problem.CLASSES > 0
    PARTS: gl.constexpr = problem.BLOCK_N // c.block_shape[-1]
    BRINGS: gl.constexpr = len(brought) > 0
    BROUGHT: gl.constexpr = I_CONSUMER * PARTS if BRINGS else -1
    its_bias = brought[0] if BRINGS else bias
    ADDED: gl.constexpr = I_CONSUMER * PARTS if HAS_RESIDUAL else -1
    staging = c_staging if HAS_RESIDUAL else c_staging.index(I_CONSUMER)
    first = 0
    at = Cursor(gl.to_tensor(0), gl.to_tensor(0), ring.STAGES)
    phase = gl.to_tensor(0)
    for i_tile in range(gl.program_id(0), problem.whole_tiles(), gl.num_programs(0)):
        if PLACED:
            first, rows, column = problem.place(i_tile)
        if HAS_RESIDUAL:
            residual, landed = added
            landed = landed.index(I_CONSUMER)
            own = problem.own(rows, I_CONSUMER)
            _ask_residual(residual, c_staging, landed, own[0], column, I_CONSUMER * PARTS, PARTS)
        if IN_TF32:
            acc, at = tf32_sum(ring, at, I_CONSUMER, problem)
        else:
            acc, at = _sum(ring, at, first, I_CONSUMER, problem.BLOCK_N, problem)
        # Where the tile lies takes two divisions: behind the last product they cost no time.
        if not PLACED:
            first, rows, column = problem.place(i_tile)
        if BRINGS:
            bring_bias(bias, brought[0], I_CONSUMER * PARTS, PARTS, column, problem.N)
        if not IN_TF32:
            acc = _whole_sum(ring, at, acc)
        own = problem.own(rows, I_CONSUMER)
        if HAS_RESIDUAL:
            mbarrier.wait(landed, phase)
            phase ^= 1
        store(c, staging, its_bias, own, column, acc, problem.N, ACTIVATION, ADDED, BROUGHT)
    if problem.TAIL > 1 and problem.has_tail():
        acc, at = _sum(ring, at, 0, I_CONSUMER, problem.BLOCK_N // problem.TAIL, problem)
        row, column = problem.tail()
        if BRINGS:
            bring_bias(bias, brought[0], I_CONSUMER * PARTS, PARTS // problem.TAIL, column, problem.N)  # fmt: skip  # noqa: E501
        acc = _whole_sum(ring, at, acc)
        row += I_CONSUMER * ROWS
        store(c, staging, its_bias, (row,), column, acc, problem.N, ACTIVATION, -1, BROUGHT)  # fmt: skip  # noqa: E501
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["M", "N", "K", "a_phase", "a_pitch"])
def matmul_hopper(
    a,
    b,
    b_tail,
    c,
    bias,
    residual,
    M,
    N,
    K,
    a_phase,
    a_pitch,
    CLASSES: gl.constexpr,
    CONSUMERS: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP_M: gl.constexpr,
    A_MAJOR_M: gl.constexpr,
    B_MAJOR_N: gl.constexpr,
    ACTIVATION: gl.constexpr,
    TAIL: gl.constexpr,
):
    """c = activation(a @ b + bias) + residual; a: (M, K) or, A_MAJOR_M, (K, M); b: (N, K) or (K,
    N); in fp32 b is (N, K), rounded to tf32 by the launch before. What a consumer adds comes while
    it multiplies, into as many buffers as it writes c by.

    CLASSES: 0, or a and c are (M / CLASSES, CLASSES, K or N), and a tile has rows of one class, as
    in one_tile.py; the bias is loaded where it is added then.

    TAIL: 1, or tiles that programs do not share evenly are cut into so many parts along N, of which
    no program has two; ``b_tail`` is b by boxes as wide."""
    if a.dtype == gl.float32:
        gdc_wait()
    OF_CONSUMER: gl.constexpr = a.block_shape[1 if A_MAJOR_M else 0]
    problem = Problem(M, N, K, a_phase, a_pitch, CLASSES, CONSUMERS, OF_CONSUMER, BLOCK_N, BLOCK_K, GROUP_M, A_MAJOR_M, B_MAJOR_N, TAIL)  # fmt: skip  # noqa: E501
    ring = new_ring(a, b, STAGES, CONSUMERS)
    BUFFERS: gl.constexpr = BLOCK_N // c.block_shape[-1] if residual is not None else 1
    shape: gl.constexpr = [OF_CONSUMER, c.block_shape[-1]]
    FLAT: gl.constexpr = gl.NVMMASharedLayout.get_default_for(shape, c.dtype)
    c_staging = gl.allocate_shared_memory(c.dtype, [CONSUMERS * BUFFERS] + shape, FLAT)  # noqa: RUF005
    added = (residual, barriers(CONSUMERS, 1)) if residual is not None else ()
    BRINGS: gl.constexpr = bias is not None and CLASSES == 0
    brought = (bias_buffers(CONSUMERS * BLOCK_N, c.block_shape[-1]),) if BRINGS else ()
    fence_async_shared()
    # Constexprs survive only in tuples written in place.
    specialise(
        _consume, (c, bias, brought, added, ring, c_staging, problem, ACTIVATION),
        produce, (a, b, ring, problem, b_tail), CONSUMERS,
    )  # fmt: skip
