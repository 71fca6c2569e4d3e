"""How Hopper's matmul adds up fp32 operands rounded to tf32, in Gluon.

The matrix unit drops the bits that tf32 has not, and takes its right operand only from shared
memory, along K: b comes as a copy that is rounded already (copy.py). Rows of a are rounded on their
way from shared memory to the registers in which the matrix unit takes a left operand, whichever way
they lie.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from kernels.device.hopper_rings import ROWS
from kernels.device.products import nearest_tf32


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
    """Start the product of one stage with its rows of a, rounded to tf32."""
    b = ring.b.index(at.stage).permute((1, 0))
    return warpgroup_mma(nearest_tf32(a), b, acc, is_async=True)


@gluon.jit
def tf32_sum(ring, at, I_CONSUMER: gl.constexpr, problem):
    """A consumer's rows of a tile, and the next stage; b lies along K."""
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, problem.BLOCK_N, 8])
    acc = gl.zeros([ROWS, problem.BLOCK_N], gl.float32, LAYOUT)
    a = _rows(ring, at, I_CONSUMER, problem, LAYOUT)
    for _ in range(problem.BLOCK_K, problem.K, problem.BLOCK_K):
        acc = _multiply(ring, at, a, acc)
        used = at.stage
        at = at.next()
        # The next rows come while the product runs; rounded there, they would serialise it
        # (advisory C7513).
        a = _rows(ring, at, I_CONSUMER, problem, LAYOUT)
        acc = warpgroup_mma_wait(0, deps=[acc])
        mbarrier.arrive(ring.empty.index(used))
    acc = warpgroup_mma_wait(0, deps=[_multiply(ring, at, a, acc)])
    mbarrier.arrive(ring.empty.index(at.stage))
    return acc, at.next()
