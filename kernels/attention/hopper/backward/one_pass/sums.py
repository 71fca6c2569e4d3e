"""The sums of dq: what a product of a step is in units, and how it gets there."""

from triton._C.libtriton import ir
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language._core import builtin
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared

from kernels.attention.hopper.backward.row_stats import UNITS
from kernels.device.hopper_rings import ROWS, partition_barrier


@builtin
def add_to_global(desc, coord, src, _semantic=None):
    """Add a tile of shared memory to global memory by the copy engine, which Gluon has no word
    for."""
    coord = _semantic._convert_to_ir_values(coord, require_i64=False)
    kind = ir.DESCRIPTOR_REDUCE_KIND.ADD
    _semantic.builder.create_async_tma_reduce(kind, desc.handle, coord, src.handle)


@gluon.jit
def _to_fixed(x):
    """Rounded to the nearest int32; NaN becomes 0."""
    return gl.inline_asm_elementwise(
        "cvt.rni.s32.f32 $0, $1;", "=r,r", [x], dtype=gl.int32, is_pure=True, pack=1
    )


@gluon.jit
def _spread(x):
    """Of each 32 columns the groups of four in the order of their number's bits backwards.

    Eight lanes store four rows' same two groups side by side. The copy engine's pattern exchanges
    neighbouring groups in odd rows, so two rows would use the same banks. Two groups that lie four
    apart use others in every row.
    """
    x = x.reshape([x.shape[0], x.shape[1] // 32, 2, 2, 2, 4])
    return x.permute((0, 1, 4, 3, 2, 5)).reshape([x.shape[0], x.shape[1] * 32])


@gluon.jit
def _same(number, rows):
    """A number for each row."""
    return number.load(rows.type.layout).broadcast_to(rows.shape)


@gluon.jit
def units(rows, stage, FIRST: gl.constexpr, most, i_most, LAYOUT: gl.constexpr):
    """In how many units 1 of the gradients of 64 rows is counted; ``most`` has at ``i_most`` the
    largest element of K, and then the largest norm of V."""
    delta = rows.index(stage * 3 + 1).slice(FIRST, ROWS, 0).load(gl.SliceLayout(1, LAYOUT))
    norm = rows.index(stage * 3 + 2).slice(FIRST, ROWS, 0).load(gl.SliceLayout(1, LAYOUT))
    k_most = _same(most.index(i_most), norm)
    v_most = _same(most.index(i_most + 1), norm)
    return gl.inline_asm_elementwise(
        UNITS, "=r,r,r,r,r", [norm, delta, v_most, k_most], gl.float32, is_pure=True, pack=1
    )


@gluon.jit
def add(dq, coord, tile, x):
    """Add a half of dq to the sums, through a tile that the engine has read before."""
    tile.store(_spread(_to_fixed(x)))
    fence_async_shared()
    partition_barrier()
    add_to_global(dq, coord, tile)
