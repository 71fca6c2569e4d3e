"""Where tiles of A and B lie, for kernels that walk K."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def pointers_to(
    a, b, i_m, i_n, first_k, o_m, o_n, o_k, a_pitch, b_pitch, SPLIT: tl.constexpr
):  # fmt: skip
    """[rows, depth] of A and [depth, columns] of B: of row ``i_m`` and column ``i_n`` of tiles and,
    with SPLIT, from block ``first_k`` of K on."""
    BLOCK_K: tl.constexpr = o_k.shape[0]
    a += (i_m * o_m.shape[0]).to(tl.int64) * a_pitch.row
    b += (i_n * o_n.shape[0]).to(tl.int64) * b_pitch.column
    p_a = a + (o_m[:, None] * a_pitch.row + o_k[None, :] * a_pitch.column)
    p_b = b + (o_k[:, None] * b_pitch.row + o_n[None, :] * b_pitch.column)
    if SPLIT:
        p_a += (first_k * BLOCK_K).to(tl.int64) * a_pitch.column
        p_b += (first_k * BLOCK_K).to(tl.int64) * b_pitch.row
    return p_a, p_b


@triton.jit
def load_described(
    a, b, o_m, o_n, o_k, A_TRANSPOSED: tl.constexpr, B_TRANSPOSED: tl.constexpr
):  # fmt: skip
    """The same tiles through descriptors, from row ``o_m``, column ``o_n`` and depth ``o_k`` on."""
    b_a = a.load([o_k, o_m]).T if A_TRANSPOSED else a.load([o_m, o_k])
    b_b = b.load([o_n, o_k]).T if B_TRANSPOSED else b.load([o_k, o_n])
    return b_a, b_b


@triton.jit
def decoded(x, FNUZ: tl.constexpr):
    """The fp16 values of e4m3 bits: exponent and mantissa in their places, the bias by a product,
    which also makes normal numbers of what is subnormal in e4m3."""
    magnitude = x & 0x7F
    bits = ((x & 0x80).to(tl.uint16) << 8) | (magnitude.to(tl.uint16) << 7)
    value = bits.to(tl.float16, bitcast=True) * (128.0 if FNUZ else 256.0)
    is_nan = (x == 0x80) if FNUZ else (magnitude == 0x7F)
    return tl.where(is_nan, float("nan"), value).to(tl.float16)
