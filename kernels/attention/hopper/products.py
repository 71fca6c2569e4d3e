"""Products of Hopper's attention forward pass, by the columns a head dim has (Gluon).

Blocks are powers of two: a head dim between has zeros beside it in shared memory. Where REST is
set, scores are of HEAD_DIM // 2 columns and REST of the other half instead of all. With SPLIT so
are the values, and what rows accumulate comes in two parts.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import warpgroup_mma, warpgroup_mma_wait

from kernels.device.hopper_rings import ROWS

from .weight_pairs import unpack


@gluon.jit
def scores(q, k_ring, k_at, problem, REST: gl.constexpr = 0):
    """Start q @ k^T of one block."""
    # wgmma takes 32 bytes of a row at a time.
    K: gl.constexpr = 256 // q.dtype.primitive_bitwidth
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, problem.BLOCK_N, K])
    k = k_ring.memory.index(k_at.stage).reshape([problem.BLOCK_N, problem.HEAD_DIM])
    s = gl.zeros([ROWS, problem.BLOCK_N], gl.float32, LAYOUT)
    if REST == 0:
        return warpgroup_mma(q, k.permute((1, 0)), s, use_acc=False, is_async=True)
    else:
        HALF: gl.constexpr = problem.HEAD_DIM // 2
        b = k.slice(0, HALF, 1).permute((1, 0))
        s = warpgroup_mma(q.slice(0, HALF, 1), b, s, use_acc=False, is_async=True)
        b = k.slice(HALF, REST, 1).permute((1, 0))
        return warpgroup_mma(q.slice(HALF, REST, 1), b, s, is_async=True)


@gluon.jit
def _sums(COLUMNS: gl.constexpr):
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLUMNS, 16])
    return gl.zeros([ROWS, COLUMNS], gl.float32, LAYOUT)


@gluon.jit
def no_output(problem):
    """Zeros, in parts: (ROWS, HEAD_DIM), or half of it and REST."""
    if not problem.SPLIT:
        return (_sums(problem.HEAD_DIM),)
    else:
        return _sums(problem.HEAD_DIM // 2), _sums(problem.REST)


@gluon.jit
def values(p, v_ring, v_at, acc, problem):
    """Start acc + p @ v of one block."""
    v = v_ring.memory.index(v_at.stage).reshape([problem.BLOCK_N, problem.HEAD_DIM])
    LAYOUT: gl.constexpr = gl.DotOperandLayout(0, acc[0].type.layout, 2)
    if not problem.SPLIT:
        return (warpgroup_mma(unpack(p, v.dtype, LAYOUT), v, acc[0], is_async=True),)
    else:
        HALF: gl.constexpr = problem.HEAD_DIM // 2
        OF_REST: gl.constexpr = gl.DotOperandLayout(0, acc[1].type.layout, 2)
        a = unpack(p, v.dtype, LAYOUT)
        first = warpgroup_mma(a, v.slice(0, HALF, 1), acc[0], is_async=True)
        a = unpack(p, v.dtype, OF_REST)
        rest = warpgroup_mma(a, v.slice(HALF, problem.REST, 1), acc[1], is_async=True)
        return first, rest


@gluon.jit
def wait_for_values(acc, problem):
    if not problem.SPLIT:
        return (warpgroup_mma_wait(0, deps=[acc[0]]),)
    else:
        first, rest = warpgroup_mma_wait(0, deps=[acc[0], acc[1]])
        return first, rest


@gluon.jit
def _by_row(acc, factor):
    return acc * gl.convert_layout(factor, gl.SliceLayout(1, acc.type.layout))[:, None]


@gluon.jit
def times(acc, factor, problem):
    """Each row times its factor (ROWS,)."""
    if not problem.SPLIT:
        return (_by_row(acc[0], factor),)
    else:
        return _by_row(acc[0], factor), _by_row(acc[1], factor)


@gluon.jit
def leave(staging, acc, problem):
    """Rows where the copy engine fetches them. It does not write columns behind the head dim."""
    to = staging.reshape([ROWS, problem.HEAD_DIM])
    if not problem.SPLIT:
        to.store(acc[0].to(to.dtype))
    else:
        HALF: gl.constexpr = problem.HEAD_DIM // 2
        to.slice(0, HALF, 1).store(acc[0].to(to.dtype))
        to.slice(HALF, problem.REST, 1).store(acc[1].to(to.dtype))
