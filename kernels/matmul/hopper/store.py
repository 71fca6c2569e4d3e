"""How tiles of Hopper's 16-bit and tf32 matmuls end: bias, activation, residual, the way out."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, tma

from kernels.matmul.common.activation import apply_on_hopper


@gluon.jit
def parts_of(x, WIDTH: gl.constexpr):
    """The columns of x as a tuple of parts of WIDTH columns; no value changes its thread."""
    if x.shape[1] == WIDTH:
        return (x,)
    else:
        left, right = x.reshape([x.shape[0], 2, x.shape[1] // 2]).permute((0, 2, 1)).split()
        return parts_of(left, WIDTH) + parts_of(right, WIDTH)


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
        b_bias = gl.load(bias + at + o_n, mask=o_n < N - at, other=0.0)
        found = found + (b_bias,)  # type: ignore[assignment]  # noqa: RUF005
    for i in gl.static_range(PARTS):
        to.index(FIRST + i).store(found[i].to(gl.float32))


@gluon.jit
def _store_part(c, staging, bias, rows, column, x, o_part, N, ACTIVATION: gl.constexpr, FIRST: gl.constexpr, BROUGHT: gl.constexpr, TURNS: gl.constexpr):  # fmt: skip  # noqa: E501
    """Finish and write x, the columns from ``o_part`` on of a tile whose first is ``column``."""
    STORE_N: gl.constexpr = c.block_shape[-1]
    i = o_part // STORE_N
    HAS_RESIDUAL: gl.constexpr = FIRST >= 0 and TURNS == 0
    if HAS_RESIDUAL:
        staging = staging.index(FIRST + i)
    elif TURNS > 0:
        staging = staging.index(FIRST + i % TURNS)
    column += o_part
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, STORE_N, 16])
    x = gl.convert_layout(x, LAYOUT, assert_trivial=True)
    if bias is not None and BROUGHT >= 0:
        x += bias.index(BROUGHT + i).load(gl.SliceLayout(0, LAYOUT))[None, :]
    elif bias is not None:
        o_n = column + gl.arange(0, STORE_N, gl.SliceLayout(0, LAYOUT))
        b_bias = gl.load(bias + o_n, mask=o_n < N, other=0.0)
        x += b_bias.to(gl.float32)[None, :]
    x = apply_on_hopper(x, ACTIVATION, c.dtype)
    if HAS_RESIDUAL:
        x += staging.load(LAYOUT).to(gl.float32)
    else:
        tma.store_wait(max(TURNS - 1, 0))
    staging.store(x.to(c.dtype))
    fence_async_shared()
    tma.async_copy_shared_to_global(c, rows + (column,), staging.reshape(c.block_shape))  # noqa: RUF005


@gluon.jit
def store(c, staging, bias, rows, column, x, N, ACTIVATION: gl.constexpr, FIRST: gl.constexpr = -1, BROUGHT: gl.constexpr = -1, TURNS: gl.constexpr = 0):  # fmt: skip  # noqa: E501
    """Finish and write the columns of x, which start at ``column``, as many at a time as fit;
    ``rows``: where c's rows start, in all its axes but the last. BROUGHT: -1, or ``bias`` is
    what ``bring_bias`` filled from there on. FIRST: -1, or a residual stands in
    buffers of ``staging``, those of these rows from here on, and they are written through these.
    TURNS: 0, or instead so many buffers from FIRST on, an even share of x's parts, are written one
    after the other while the copy engine reads the others.

    Code that runs once a tile waits to be fetched, instruction by instruction. Where there is much
    of it a loop fetches a part's once, although no loop counts through registers: the parts move.
    """
    STORE_N: gl.constexpr = c.block_shape[-1]
    MUCH: gl.constexpr = ACTIVATION == "gelu" or ACTIVATION == "silu"
    parts = parts_of(x, STORE_N)
    if MUCH:
        for o_part in range(0, x.shape[1], STORE_N):
            _store_part(c, staging, bias, rows, column, parts[0], o_part, N, ACTIVATION, FIRST, BROUGHT, TURNS)  # fmt: skip  # noqa: E501
            parts = parts[1:] + parts[-1:]
    else:
        for i in gl.static_range(x.shape[1] // STORE_N):
            _store_part(c, staging, bias, rows, column, parts[i], i * STORE_N, N, ACTIVATION, FIRST, BROUGHT, TURNS)  # fmt: skip  # noqa: E501
