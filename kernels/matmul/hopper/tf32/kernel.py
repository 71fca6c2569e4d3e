"""The matmul of fp32 operands rounded to tf32 on Hopper, in Gluon.

The matrix unit drops the bits that tf32 has not, and takes its right operand from shared memory,
along K, alone: b comes as a copy that is rounded already (copy.py). Rows of a are
rounded on their way from shared memory to the registers in which the matrix unit takes a left
operand, whichever way they lie.
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

from kernels.device.hopper_rings import ROWS, Cursor, specialise
from kernels.matmul.hopper.persistent import Problem, new_ring, produce
from kernels.matmul.hopper.store import store


@gluon.jit
def _rows(ring, at, I_CONSUMER: gl.constexpr, problem, LAYOUT: gl.constexpr):
    """Wait for one stage; its rows of a."""
    mbarrier.wait(ring.full.index(at.stage), at.phase)
    a = ring.a.index(at.stage * problem.CONSUMERS + I_CONSUMER)
    if problem.A_MAJOR_M:
        a = a.permute((1, 0))
    return a.load(gl.DotOperandLayout(0, LAYOUT, 1))


@gluon.jit
def _multiply(ring, at, a, acc):
    """Start the product of one stage with its rows of a, rounded to the nearest tf32, ties away
    from zero."""
    bits = (a.to(gl.int32, bitcast=True) + 0x1000) & -0x2000
    # The carry of a NaN whose bits are all set would make a zero of it.
    a = gl.where(a == a, bits.to(gl.float32, bitcast=True), a)
    b = ring.b.index(at.stage).permute((1, 0))
    return warpgroup_mma(a, b, acc, is_async=True)


@gluon.jit
def _consume(c, bias, ring, c_staging, problem, ACTIVATION: gl.constexpr, I_CONSUMER: gl.constexpr):  # fmt: skip  # noqa: E501
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, problem.BLOCK_N, 8])
    at = Cursor(gl.to_tensor(0), gl.to_tensor(0), ring.STAGES)
    for i_tile in range(gl.program_id(0), problem.tiles(), gl.num_programs(0)):
        row, column = problem.tile(i_tile)
        acc = gl.zeros([ROWS, problem.BLOCK_N], gl.float32, LAYOUT)
        a = _rows(ring, at, I_CONSUMER, problem, LAYOUT)
        for _ in range(problem.BLOCK_K, problem.K, problem.BLOCK_K):
            acc = _multiply(ring, at, a, acc)
            used = at.stage
            at = at.next()
            # The next rows come beside the product; rounded there, they would serialise it
            # (advisory C7513).
            a = _rows(ring, at, I_CONSUMER, problem, LAYOUT)
            acc = warpgroup_mma_wait(0, deps=[acc])
            mbarrier.arrive(ring.empty.index(used))
        acc = _multiply(ring, at, a, acc)
        acc = warpgroup_mma_wait(0, deps=[acc])
        mbarrier.arrive(ring.empty.index(at.stage))
        at = at.next()
        row += I_CONSUMER * ROWS
        staging = c_staging.index(I_CONSUMER)
        store(c, staging, bias, (row,), column, acc, problem.N, ACTIVATION)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["M", "N", "K"])
def matmul_hopper_tf32(
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
    ACTIVATION: gl.constexpr,
):
    """c = activation(a @ b + bias); a: (M, K) or, A_MAJOR_M, (K, M); b: (N, K) in tf32."""
    gdc_wait()
    problem = Problem(M, N, K, CONSUMERS, BLOCK_N, BLOCK_K, GROUP_M, A_MAJOR_M, False, 1)
    ring = new_ring(a, b, STAGES, CONSUMERS)
    shape: gl.constexpr = [CONSUMERS] + c.block_shape  # noqa: RUF005
    c_staging = gl.allocate_shared_memory(c.dtype, shape, c.layout)
    fence_async_shared()
    # Constexprs survive only in tuples written in place.
    specialise(
        _consume, (c, bias, ring, c_staging, problem, ACTIVATION),
        produce, (a, b, ring, problem), CONSUMERS,
    )  # fmt: skip
