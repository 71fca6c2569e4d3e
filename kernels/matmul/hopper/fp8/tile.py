"""What Hopper's fp8 matmul does of a tile in one way: starts a product, writes what was summed."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import warpgroup_mma

from kernels.device.hopper_rings import ROWS, partition_barrier

WIDTH = gl.constexpr(128)  # columns multiplied at a time: those that share a scale of blocks
# How a consumer's threads hold its rows of such columns.
LAYOUT = gl.constexpr(gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 128, 32]))
BUFFERS = gl.constexpr(2)  # through which a consumer writes its rows, in turns


@gluon.jit
def scales_of_tensors(a_scale, b_scale, A_SCALE: gl.constexpr, B_SCALE: gl.constexpr):
    """The scale of each operand that has one for all it holds, else 1: asked for before anything
    is multiplied, since the end of a tile would wait for it."""
    of_a = 1.0
    of_b = 1.0
    if A_SCALE == "tensor":
        of_a = gl.load(a_scale)
    if B_SCALE == "tensor":
        of_b = gl.load(b_scale)
    return of_a, of_b


@gluon.jit
def scales_memory(SHAPE: gl.constexpr, SCALE: gl.constexpr):
    """Shared memory for the scales of a tile's rows or columns, if they are asked for ahead."""
    if SCALE == "ahead":
        return gl.allocate_shared_memory(gl.float32, SHAPE, gl.SwizzledSharedLayout(1, 1, 1, [0]))
    else:
        return ()


@gluon.jit
def ask_scales(to, scale, first, end, stride, SCALE: gl.constexpr):
    """Start the copy of the scales of rows or columns from ``first`` on, of which there are some
    up to ``end``, past the registers: no thread waits for them, and each asks for a few, not for
    each of its columns."""
    if SCALE == "ahead":
        ONE_A_THREAD: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
        at = first + gl.arange(0, to.shape[0], ONE_A_THREAD)
        async_copy.async_copy_global_to_shared(to, scale + at * stride, mask=at < end)
        async_copy.commit_group()


@gluon.jit
def wait_for_scales(A_SCALE: gl.constexpr, B_SCALE: gl.constexpr):
    """What all threads of a partition asked for is there."""
    if A_SCALE == "ahead" or B_SCALE == "ahead":
        async_copy.wait_group(0)
        partition_barrier()


@gluon.jit
def multiply(a, b, I_PART: gl.constexpr):
    """Start the product of a block of rows with a part of a block of columns."""
    nothing = gl.zeros([ROWS, WIDTH], gl.float32, LAYOUT)
    if b.shape[0] > WIDTH:
        b = b.slice(I_PART * WIDTH, WIDTH, 0)
    return warpgroup_mma(a, b.permute((1, 0)), nothing, use_acc=False, is_async=True)
