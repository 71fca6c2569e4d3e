"""The matmul of Hopper GPUs in Gluon: one producer warp copies, consumer warpgroups multiply.

A program owns one multiprocessor and walks the tiles of C. Its producer warp keeps a ring of
shared-memory stages full through the bulk copy engine (TMA); every consumer warpgroup multiplies
its 64 rows of the tile with all columns (wgmma) and hands stages back. docs/hopper.md tells how
this shape came about. portable.py computes the same and is its twin in tests.

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
from triton.language.core import _aggregate as aggregate

from ..hopper import ROWS, Cursor, barriers
from .activation import apply_activation


@aggregate
class Problem:
    """Sizes, how they are cut, and which operands are stored transposed."""

    M: gl.tensor
    N: gl.tensor
    K: gl.tensor
    CONSUMERS: gl.constexpr
    BLOCK_M: gl.constexpr
    BLOCK_N: gl.constexpr
    BLOCK_K: gl.constexpr
    GROUP_M: gl.constexpr
    A_MAJOR_M: gl.constexpr
    B_MAJOR_N: gl.constexpr

    @gluon.constexpr_function
    def __init__(self, M, N, K, CONSUMERS, BLOCK_N, BLOCK_K, GROUP_M, A_MAJOR_M, B_MAJOR_N):
        self.M = M
        self.N = N
        self.K = K
        self.CONSUMERS = gl.constexpr(CONSUMERS)
        self.BLOCK_M = gl.constexpr(64 * CONSUMERS)
        self.BLOCK_N = gl.constexpr(BLOCK_N)
        self.BLOCK_K = gl.constexpr(BLOCK_K)
        self.GROUP_M = gl.constexpr(GROUP_M)
        self.A_MAJOR_M = gl.constexpr(A_MAJOR_M)
        self.B_MAJOR_N = gl.constexpr(B_MAJOR_N)

    @gluon.jit
    def tiles(self):
        return gl.cdiv(self.M, self.BLOCK_M) * gl.cdiv(self.N, self.BLOCK_N)

    @gluon.jit
    def tile(self, i_tile):
        """First row and column of a tile: GROUP_M rows of tiles are walked together, so that they
        find B's columns in L2."""
        n_tiles_m = gl.cdiv(self.M, self.BLOCK_M)
        per_group = self.GROUP_M * gl.cdiv(self.N, self.BLOCK_N)
        first_m = i_tile // per_group * self.GROUP_M
        rows = min(n_tiles_m - first_m, self.GROUP_M)
        within = i_tile % per_group
        return (first_m + within % rows) * self.BLOCK_M, within // rows * self.BLOCK_N


@aggregate
class Ring:
    """Stages of shared memory for a block of A and one of B, filled and emptied together."""

    a: gl.shared_memory_descriptor
    b: gl.shared_memory_descriptor
    full: gl.shared_memory_descriptor
    empty: gl.shared_memory_descriptor
    STAGES: gl.constexpr

    @gluon.constexpr_function
    def __init__(self, a, b, full, empty, STAGES):
        self.a = a
        self.b = b
        self.full = full
        self.empty = empty
        self.STAGES = gl.constexpr(STAGES)


@gluon.jit
def produce(a, b, ring, problem):
    """Keep the ring full of what the program's tiles multiply."""
    BLOCK_M: gl.constexpr = problem.BLOCK_M
    VALUES: gl.constexpr = (BLOCK_M + problem.BLOCK_N) * problem.BLOCK_K
    BYTES: gl.constexpr = VALUES * a.dtype.primitive_bitwidth // 8
    # Nothing is in the ring: the first round waits for nobody.
    at = Cursor(gl.to_tensor(0), gl.to_tensor(1), ring.STAGES)
    for i_tile in range(gl.program_id(0), problem.tiles(), gl.num_programs(0)):
        row, column = problem.tile(i_tile)
        for k in range(0, problem.K, problem.BLOCK_K):
            mbarrier.wait(ring.empty.index(at.stage), at.phase)
            ready = ring.full.index(at.stage)
            mbarrier.expect(ready, BYTES)
            for i in gl.static_range(problem.CONSUMERS):
                to = ring.a.index(at.stage * problem.CONSUMERS + i)
                if problem.A_MAJOR_M:
                    tma.async_copy_global_to_shared(a, [k, row + i * ROWS], ready, to)
                else:
                    tma.async_copy_global_to_shared(a, [row + i * ROWS, k], ready, to)
            to = ring.b.index(at.stage)
            if problem.B_MAJOR_N:
                tma.async_copy_global_to_shared(b, [k, column], ready, to)
            else:
                tma.async_copy_global_to_shared(b, [column, k], ready, to)
            at = at.next()


@gluon.jit
def _multiply(ring, at, acc, use_acc, I_CONSUMER: gl.constexpr, problem):
    """Wait for one stage and start its multiplication."""
    mbarrier.wait(ring.full.index(at.stage), at.phase)
    a = ring.a.index(at.stage * problem.CONSUMERS + I_CONSUMER)
    b = ring.b.index(at.stage)
    if problem.A_MAJOR_M:
        a = a.permute((1, 0))
    if not problem.B_MAJOR_N:
        b = b.permute((1, 0))
    return warpgroup_mma(a, b, acc, use_acc=use_acc, is_async=True)


@gluon.jit
def _parts(x, WIDTH: gl.constexpr):
    """The columns of x as a tuple of parts of WIDTH columns; no value changes its thread."""
    if x.shape[1] == WIDTH:
        return (x,)
    else:
        left, right = x.reshape([x.shape[0], 2, x.shape[1] // 2]).permute((0, 2, 1)).split()
        return _parts(left, WIDTH) + _parts(right, WIDTH)


@gluon.jit
def _store_part(c, staging, bias, rows, column, x, N, HAS_BIAS: gl.constexpr, ACTIVATION: gl.constexpr):  # fmt: skip  # noqa: E501
    """Finish and write the columns of x, which start at ``column``."""
    STORE_N: gl.constexpr = staging.shape[1]
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, STORE_N, 16])
    x = gl.convert_layout(x, LAYOUT, assert_trivial=True)
    if HAS_BIAS:
        o_n = column + gl.arange(0, STORE_N, gl.SliceLayout(0, LAYOUT))
        b_bias = gl.load(bias + o_n, mask=o_n < N, other=0.0)
        x += b_bias.to(gl.float32)[None, :]
    x = apply_activation(x, ACTIVATION, c.dtype)
    tma.store_wait(0)
    staging.store(x.to(c.dtype))
    fence_async_shared()
    tma.async_copy_shared_to_global(c, rows + (column,), staging.reshape(c.block_shape))  # noqa: RUF005


@gluon.jit
def store(c, staging, bias, rows, column, x, N, HAS_BIAS: gl.constexpr, ACTIVATION: gl.constexpr):  # fmt: skip  # noqa: E501
    """Finish and write the columns of x, which start at ``column``, as many at a time as fit;
    ``rows``: where c's rows start, in all its axes but the last.

    Code that runs once a tile waits to be fetched, instruction by instruction. Where there is much
    of it a loop fetches a part's once, although no loop counts through registers: the parts move.
    """
    STORE_N: gl.constexpr = staging.shape[1]
    MUCH: gl.constexpr = ACTIVATION == "gelu" or ACTIVATION == "silu"
    parts = _parts(x, STORE_N)
    if MUCH:
        for o_part in range(0, x.shape[1], STORE_N):
            at = column + o_part
            _store_part(c, staging, bias, rows, at, parts[0], N, HAS_BIAS, ACTIVATION)
            parts = parts[1:] + parts[-1:]
    else:
        for i in gl.static_range(x.shape[1] // STORE_N):
            at = column + i * STORE_N
            _store_part(c, staging, bias, rows, at, parts[i], N, HAS_BIAS, ACTIVATION)


@gluon.jit
def _consume(c, bias, ring, c_staging, problem, I_CONSUMER: gl.constexpr, HAS_BIAS: gl.constexpr, ACTIVATION: gl.constexpr):  # fmt: skip  # noqa: E501
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, problem.BLOCK_N, 16])
    at = Cursor(gl.to_tensor(0), gl.to_tensor(0), ring.STAGES)
    for i_tile in range(gl.program_id(0), problem.tiles(), gl.num_programs(0)):
        row, column = problem.tile(i_tile)
        acc = gl.zeros([ROWS, problem.BLOCK_N], gl.float32, LAYOUT)
        for k in range(0, problem.K, problem.BLOCK_K):
            acc = _multiply(ring, at, acc, k > 0, I_CONSUMER, problem)
            # One multiplication stays in flight; the one before is done with its stage.
            acc = warpgroup_mma_wait(1, deps=[acc])
            mbarrier.arrive(ring.empty.index(at.previous_stage()), pred=k > 0)
            at = at.next()
        acc = warpgroup_mma_wait(0, deps=[acc])
        mbarrier.arrive(ring.empty.index(at.previous_stage()))
        row += I_CONSUMER * ROWS
        staging = c_staging.index(I_CONSUMER)
        store(c, staging, bias, (row,), column, acc, problem.N, HAS_BIAS, ACTIVATION)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["M", "N", "K"])
def matmul_hopper(
    a,
    b,
    c,
    bias,
    M,
    N,
    K,
    CONSUMERS: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr,
    GROUP_M: gl.constexpr,
    A_MAJOR_M: gl.constexpr,
    B_MAJOR_N: gl.constexpr,
    HAS_BIAS: gl.constexpr,
    ACTIVATION: gl.constexpr,
    CONSUMER_REGISTERS: gl.constexpr,
    PRODUCER_REGISTERS: gl.constexpr,
):
    """c = activation(a @ b + bias); a: (M, K) or, A_MAJOR_M, (K, M); b: (N, K) or (K, N)."""
    problem = Problem(M, N, K, CONSUMERS, BLOCK_N, BLOCK_K, GROUP_M, A_MAJOR_M, B_MAJOR_N)
    ring = Ring(
        gl.allocate_shared_memory(a.dtype, [STAGES * CONSUMERS] + a.block_shape, a.layout),  # noqa: RUF005
        gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_shape, b.layout),  # noqa: RUF005
        barriers(STAGES, 1),
        barriers(STAGES, CONSUMERS),
        STAGES,
    )
    shape: gl.constexpr = [CONSUMERS] + c.block_shape  # noqa: RUF005
    c_staging = gl.allocate_shared_memory(c.dtype, shape, c.layout)
    fence_async_shared()

    # Constexprs survive only in tuples written in place, hence the repetition.
    if CONSUMERS == 1:
        gl.warp_specialize(
            [
                (_consume, (c, bias, ring, c_staging, problem, 0, HAS_BIAS, ACTIVATION)),
                (produce, (a, b, ring, problem)),
            ],
            [1],
            [PRODUCER_REGISTERS],
        )
    else:
        gl.warp_specialize(
            [
                (_consume, (c, bias, ring, c_staging, problem, 0, HAS_BIAS, ACTIVATION)),
                (_consume, (c, bias, ring, c_staging, problem, 1, HAS_BIAS, ACTIVATION)),
                (produce, (a, b, ring, problem)),
            ],
            [4, 1],
            [CONSUMER_REGISTERS, PRODUCER_REGISTERS],
        )
