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


@gluon.constexpr_function
def _products(f16):
    """PTX of eight products, rounded in pairs: six of p ($4 to $11), two of pairs ($12 to $15)."""
    name, lines = ("f16x2" if f16 else "bf16x2"), []
    for i in range(4):
        even, odd = f"${4 + 2 * i}", f"${5 + 2 * i}"
        if i == 3:
            if f16:
                lines.append("mov.b32 {h, i}, $15; cvt.f32.f16 a, h; cvt.f32.f16 b, i;")
            else:
                lines.append("shl.b32 a, $15, 16; and.b32 b, $15, 0xffff0000;")
            even, odd = "a", "b"
        lines.append(f"mul.rn.f32 a, {even}, ${16 + 2 * i}; mul.rn.f32 b, {odd}, ${17 + 2 * i};")
        lines.append(f"cvt.rn.{name}.f32 ${i}, b, a;")
    return "{.reg .b32 a, b; .reg .b16 h, i; " + " ".join(lines) + "}"


@gluon.jit
def times(p, rounded, x):
    """fp32 p times fp32 x, rounded once to the 16 bits of ``rounded``, which is p in 16 bits.

    One product in four has ``rounded`` as a factor instead: as many of p's registers are free for
    what else a loop holds, and with all of p ptxas spills. An error of two roundings is that of the
    plain formula, whose dp and product are rounded; x in 16 bits would be a third.
    """
    ASM: gl.constexpr = _products(rounded.dtype == gl.float16)
    return gl.inline_asm_elementwise(
        ASM,
        "=r,=r,=r,=r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r,r",
        [p, rounded, x],
        dtype=rounded.dtype,
        is_pure=True,
        pack=8,
    )
