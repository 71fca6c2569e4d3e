"""Softmax weights of Hopper's kernels as pairs of 16-bit values in one register.

A 16-bit value alone takes a whole register where a loop carries it or keeps it for a second use,
and two more instructions to be joined with its neighbour again.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def pack(p, DTYPE: gl.constexpr):
    """Pairs of neighbours, rounded to DTYPE, in one register: (rows, columns / 2)."""
    even, odd = p.reshape([p.shape[0], p.shape[1] // 2, 2]).split()
    NAME: gl.constexpr = "f16x2" if DTYPE == gl.float16 else "bf16x2"  # noqa: SIM300
    return gl.inline_asm_elementwise(
        "cvt.rn." + NAME + ".f32 $0, $2, $1;",
        "=r,r,r",
        [even, odd],
        dtype=gl.uint32,
        is_pure=True,
        pack=1,
    )


@gluon.jit
def unpack(packed, DTYPE: gl.constexpr, LAYOUT: gl.constexpr):
    """What ``pack`` packed, as left operand of a multiplication or as it was."""
    even = (packed & 0xFFFF).to(gl.uint16).to(DTYPE, bitcast=True)
    odd = (packed >> 16).to(gl.uint16).to(DTYPE, bitcast=True)
    p = gl.join(even, odd).reshape([packed.shape[0], packed.shape[1] * 2])
    return gl.convert_layout(p, LAYOUT)


@gluon.jit
def times(p, x):
    """bf16 p times fp32 x in bf16, two at a time; x is rounded before, the product after.

    Three roundings to 8 bits, of p, x and p x, are within 3 / 512 of the value, where the product
    in fp32 has its own alone.
    """
    return gl.inline_asm_elementwise(
        "{.reg .b32 x; cvt.rn.bf16x2.f32 x, $3, $2; mul.rn.bf16x2 $0, $1, x;}",
        "=r,r,r,r",
        [p, x],
        dtype=gl.bfloat16,
        is_pure=True,
        pack=2,
    )
