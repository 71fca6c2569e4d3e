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

from ..hopper import ROWS, Cursor, barriers, partition_barrier
from .activation import apply_on_hopper


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
def bias_buffers(COLUMNS: gl.constexpr, STORE_N: gl.constexpr):
    """Shared memory for the bias of so many columns, in fp32, a buffer for each part."""
    LAYOUT: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    return gl.allocate_shared_memory(gl.float32, [COLUMNS // STORE_N, STORE_N], LAYOUT)


@gluon.jit
def bring_bias(bias, to, FIRST: gl.constexpr, PARTS: gl.constexpr, column, N):
    """Have the bias of a tile's columns in PARTS buffers from FIRST on. Called behind the last
    product: where it comes from memory that takes about as long."""
    STORE_N: gl.constexpr = to.shape[1]
    LAYOUT: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    o_n = gl.arange(0, STORE_N, LAYOUT)
    found = ()
    for i in gl.static_range(PARTS):
        at = column + i * STORE_N
        found = found + (gl.load(bias + at + o_n, mask=o_n < N - at, other=0.0),)  # noqa: RUF005
    for i in gl.static_range(PARTS):
        to.index(FIRST + i).store(found[i].to(gl.float32))


@gluon.jit
def _store_part(c, staging, bias, rows, column, x, N, HAS_BIAS: gl.constexpr, ACTIVATION: gl.constexpr, HAS_RESIDUAL: gl.constexpr, BROUGHT: gl.constexpr):  # fmt: skip  # noqa: E501
    """Finish and write the columns of x, which start at ``column``; a residual stands in
    ``staging``."""
    STORE_N: gl.constexpr = staging.shape[1]
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, STORE_N, 16])
    x = gl.convert_layout(x, LAYOUT, assert_trivial=True)
    if HAS_BIAS and BROUGHT:
        x += bias.load(gl.SliceLayout(0, LAYOUT))[None, :]
    elif HAS_BIAS:
        o_n = column + gl.arange(0, STORE_N, gl.SliceLayout(0, LAYOUT))
        b_bias = gl.load(bias + o_n, mask=o_n < N, other=0.0)
        x += b_bias.to(gl.float32)[None, :]
    x = apply_on_hopper(x, ACTIVATION, c.dtype)
    if HAS_RESIDUAL:
        x += staging.load(LAYOUT).to(gl.float32)
    else:
        tma.store_wait(0)
    staging.store(x.to(c.dtype))
    fence_async_shared()
    tma.async_copy_shared_to_global(c, rows + (column,), staging.reshape(c.block_shape))  # noqa: RUF005


@gluon.jit
def store(c, staging, bias, rows, column, x, N, HAS_BIAS: gl.constexpr, ACTIVATION: gl.constexpr, FIRST: gl.constexpr = -1, BROUGHT: gl.constexpr = -1):  # fmt: skip  # noqa: E501
    """Finish and write the columns of x, which start at ``column``, as many at a time as fit;
    ``rows``: where c's rows start, in all its axes but the last. BROUGHT: -1, or ``bias`` is
    what ``bring_bias`` filled from there on. FIRST: -1, or a residual stands in
    buffers of ``staging``, those of these rows from here on, and they are written through these.

    Code that runs once a tile waits to be fetched, instruction by instruction. Where there is much
    of it a loop fetches a part's once, although no loop counts through registers: the parts move.
    """
    STORE_N: gl.constexpr = c.block_shape[-1]
    MUCH: gl.constexpr = ACTIVATION == "gelu" or ACTIVATION == "silu"
    ADD: gl.constexpr = FIRST >= 0
    parts = _parts(x, STORE_N)
    if MUCH:
        for o_part in range(0, x.shape[1], STORE_N):
            at = column + o_part
            to = staging.index(FIRST + o_part // STORE_N) if ADD else staging
            own = bias.index(BROUGHT + o_part // STORE_N) if BROUGHT >= 0 else bias
            _store_part(c, to, own, rows, at, parts[0], N, HAS_BIAS, ACTIVATION, ADD, BROUGHT >= 0)  # fmt: skip  # noqa: E501
            parts = parts[1:] + parts[-1:]
    else:
        for i in gl.static_range(x.shape[1] // STORE_N):
            at = column + i * STORE_N
            to = staging.index(FIRST + i) if ADD else staging
            own = bias.index(BROUGHT + i) if BROUGHT >= 0 else bias
            _store_part(c, to, own, rows, at, parts[i], N, HAS_BIAS, ACTIVATION, ADD, BROUGHT >= 0)  # fmt: skip  # noqa: E501


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
def _consume(c, bias, brought, added, ring, c_staging, problem, I_CONSUMER: gl.constexpr, HAS_BIAS: gl.constexpr, ACTIVATION: gl.constexpr):  # fmt: skip  # noqa: E501
    """``added``: a residual and a barrier for each consumer's rows of it, or nothing. ``brought``:
    where the bias goes on its way, if there is one."""
    HAS_RESIDUAL: gl.constexpr = len(added) > 0
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, problem.BLOCK_N, 16])
    PARTS: gl.constexpr = problem.BLOCK_N // c.block_shape[1]
    BROUGHT: gl.constexpr = I_CONSUMER * PARTS if HAS_BIAS else -1
    its_bias = brought[0] if HAS_BIAS else bias
    at = Cursor(gl.to_tensor(0), gl.to_tensor(0), ring.STAGES)
    phase = gl.to_tensor(0)
    for i_tile in range(gl.program_id(0), problem.tiles(), gl.num_programs(0)):
        if HAS_RESIDUAL:
            row, column = problem.tile(i_tile)
            residual, landed = added
            landed = landed.index(I_CONSUMER)
            own = row + I_CONSUMER * ROWS
            _ask_residual(residual, c_staging, landed, own, column, I_CONSUMER * PARTS, PARTS)
        acc = gl.zeros([ROWS, problem.BLOCK_N], gl.float32, LAYOUT)
        for k in range(0, problem.K, problem.BLOCK_K):
            acc = _multiply(ring, at, acc, k > 0, I_CONSUMER, problem)
            # One multiplication stays in flight; the one before is done with its stage.
            acc = warpgroup_mma_wait(1, deps=[acc])
            mbarrier.arrive(ring.empty.index(at.previous_stage()), pred=k > 0)
            at = at.next()
        # Where the tile lies takes two divisions: behind the last product they cost no time.
        if not HAS_RESIDUAL:
            row, column = problem.tile(i_tile)
        if HAS_BIAS:
            bring_bias(bias, brought[0], I_CONSUMER * PARTS, PARTS, column, problem.N)
        acc = warpgroup_mma_wait(0, deps=[acc])
        mbarrier.arrive(ring.empty.index(at.previous_stage()))
        row += I_CONSUMER * ROWS
        if HAS_RESIDUAL:
            mbarrier.wait(landed, phase)
            phase ^= 1
            store(c, c_staging, its_bias, (row,), column, acc, problem.N, HAS_BIAS, ACTIVATION, I_CONSUMER * PARTS, BROUGHT)  # fmt: skip  # noqa: E501
        else:
            staging = c_staging.index(I_CONSUMER)
            store(c, staging, its_bias, (row,), column, acc, problem.N, HAS_BIAS, ACTIVATION, -1, BROUGHT)  # fmt: skip  # noqa: E501
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["M", "N", "K"])
def matmul_hopper(
    a,
    b,
    c,
    bias,
    residual,
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
    HAS_RESIDUAL: gl.constexpr,
    CONSUMER_REGISTERS: gl.constexpr,
    PRODUCER_REGISTERS: gl.constexpr,
):
    """c = activation(a @ b + bias) + residual; a: (M, K) or, A_MAJOR_M, (K, M); b: (N, K) or (K,
    N). What a consumer adds comes while it multiplies, into as many buffers as it writes c by."""
    problem = Problem(M, N, K, CONSUMERS, BLOCK_N, BLOCK_K, GROUP_M, A_MAJOR_M, B_MAJOR_N)
    ring = Ring(
        gl.allocate_shared_memory(a.dtype, [STAGES * CONSUMERS] + a.block_shape, a.layout),  # noqa: RUF005
        gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_shape, b.layout),  # noqa: RUF005
        barriers(STAGES, 1),
        barriers(STAGES, CONSUMERS),
        STAGES,
    )
    BUFFERS: gl.constexpr = BLOCK_N // c.block_shape[1] if HAS_RESIDUAL else 1
    shape: gl.constexpr = [CONSUMERS * BUFFERS] + c.block_shape  # noqa: RUF005
    c_staging = gl.allocate_shared_memory(c.dtype, shape, c.layout)
    added = (residual, barriers(CONSUMERS, 1)) if HAS_RESIDUAL else ()
    brought = (bias_buffers(CONSUMERS * BLOCK_N, c.block_shape[1]),) if HAS_BIAS else ()
    fence_async_shared()

    # Constexprs survive only in tuples written in place, hence the repetition.
    if CONSUMERS == 1:
        gl.warp_specialize(
            [
                (
                    _consume,
                    (c, bias, brought, added, ring, c_staging, problem, 0, HAS_BIAS, ACTIVATION),
                ),
                (produce, (a, b, ring, problem)),
            ],
            [1],
            [PRODUCER_REGISTERS],
        )
    else:
        gl.warp_specialize(
            [
                (
                    _consume,
                    (c, bias, brought, added, ring, c_staging, problem, 0, HAS_BIAS, ACTIVATION),
                ),
                (
                    _consume,
                    (c, bias, brought, added, ring, c_staging, problem, 1, HAS_BIAS, ACTIVATION),
                ),
                (produce, (a, b, ring, problem)),
            ],
            [4, 1],
            [CONSUMER_REGISTERS, PRODUCER_REGISTERS],
        )
