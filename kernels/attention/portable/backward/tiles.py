"""What the kernels of the backward pass share: tiles of rows, softmax weights."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.attention.common.numerics.constants import TO_BASE_2
from kernels.attention.common.numerics.heavy_rows import is_marked
from kernels.attention.common.packed.sequences import load_tile


@triton.jit
def load_rows(
    tensor,
    i_b,
    i_row,
    i_h,
    rows,
    strides,
    HEAD_DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_D: tl.constexpr,
    TMA: tl.constexpr = False,
):
    """[BLOCK, BLOCK_D]: rows from ``i_row`` on of one head, zeros beyond ``rows``; with TMA as at
    ``load_tile``."""
    if TMA:
        return load_tile(tensor, i_b, i_row, i_h, rows, BLOCK, BLOCK_D)
    else:
        o_r = tl.arange(0, BLOCK)
        o_d = tl.arange(0, BLOCK_D)
        tensor += i_b.to(tl.int64) * strides.batch + tl.cast(i_h, tl.int64) * strides.head
        tensor += tl.cast(i_row, tl.int64) * strides.row
        return tl.load(
            tensor + (o_r[:, None] * strides.row + o_d[None, :] * strides.column),
            mask=(o_r[:, None] < rows - i_row) & (o_d[None, :] < HEAD_DIM),
            other=0.0,
        )


@triton.jit
def load_both(
    a, b, i_b, i_row, i_h, rows, a_strides, b_strides, TILE: tl.constexpr, BLOCK: tl.constexpr,
    TMA: tl.constexpr = False,
):  # fmt: skip
    """Tiles of keys and values, or of queries and the output's gradients, as ``load_rows``."""
    b_a = load_rows(a, i_b, i_row, i_h, rows, a_strides, TILE.HEAD_DIM, BLOCK, TILE.BLOCK_D, TMA)
    b_b = load_rows(b, i_b, i_row, i_h, rows, b_strides, TILE.HEAD_DIM_V, BLOCK, TILE.BLOCK_DV, TMA)
    return b_a, b_b


@triton.jit
def less_dlse(b_delta, b_lse, dlse, o_bh, o_m, in_m, MARKED: tl.constexpr):
    """delta of rows from rowsum(out * dout), as ``attention_backward_delta`` has it."""
    if MARKED:
        b_delta = tl.where(is_marked(b_lse), 0.0, b_delta)
    if dlse is not None:
        b_delta -= tl.load(dlse + o_bh + o_m, mask=in_m, other=0.0)
    return b_delta


@triton.jit
def exponents(b_lse):
    """Log-sum-exps in base 2, NaN for the infinite (0 times infinity), of which +inf is
    ``spoilt`` and -inf stands where no key is seen."""
    return b_lse * TO_BASE_2 + b_lse * 0.0


@triton.jit
def weights(b_s, b_exponent, seen, scale, MASKED: tl.constexpr):
    """Softmax from scores and log-sum-exps in base 2, which broadcast along the rows; queries
    beyond the tensor have a large number or +inf there, so their weights are 0."""
    b_p = tl.exp2(b_s * (scale * TO_BASE_2) - b_exponent)
    return tl.where(seen, b_p, 0.0) if MASKED else b_p


@triton.jit
def shifted(
    b_s, b_shift, seen, scale, MASKED: tl.constexpr, PRECISE: tl.constexpr, FAR: tl.constexpr
):
    """As ``weights``, with portable/backward/row_stats.py's shift: to be divided by its total. Of
    b_s's dtype. FAR says that the shift is a score, not an exponent of 2.

    PRECISE, for fp32, has no rounding of a product in an exponent: the formula has none."""
    b_scale = tl.cast(scale, b_s.dtype) * TO_BASE_2
    if FAR and PRECISE and b_s.dtype == tl.float32:
        # scale is 1: a bias is added to what was scaled before.
        b_s -= b_shift
        b_whole = tl.floor(b_s * TO_BASE_2)
        # log2(e) in two parts: the first alone is off by as much as a weight is rounded by.
        b_rest = tl.fma(b_s, 1.925963033500011e-08, tl.fma(b_s, TO_BASE_2, -b_whole))
        b_p = tl.exp2(b_rest) * tl.exp2(b_whole)
        b_p = tl.where(b_s < -150.0, 0.0, b_p)  # of -inf NaN until here
    elif FAR:
        b_p = tl.exp2((b_s - b_shift) * b_scale)
    elif PRECISE and b_s.dtype == tl.float32:
        b_p = tl.exp2(tl.fma(b_s, b_scale, -b_shift))
    else:
        b_p = tl.exp2(b_s * b_scale - b_shift)
    return tl.where(seen, b_p, 0.0) if MASKED else b_p


@triton.jit
def divided(b_p, b_total):
    """b_p / b_total, rounded to the nearest."""
    return b_p / b_total if b_p.dtype == tl.float64 else tl.div_rn(b_p, b_total)


@triton.jit
def weighted_differences(b_p, b_x, b_start, EXACT: tl.constexpr):
    """Of every row the sum of b_p * (b_x - b_start). EXACT, of fp32, gives fp64 in which one weight
    of a row rounds nothing: each difference and each product is followed by what it was rounded
    by (Knuth's TwoSum; an FMA). Dropout needs it: its output is rounded, so where dp nearly
    cancels the start may be many times dp."""
    if EXACT and b_p.dtype == tl.float32:
        b_high = b_x - b_start[:, None]
        b_back = b_high - b_x
        b_low = (b_x - (b_high - b_back)) - (b_start[:, None] + b_back)
        b_product = tl.fma(b_p, b_high, 0.0)  # as at ``dropped``: it must round by itself
        b_rest = tl.fma(b_p, b_low, tl.fma(b_p, b_high, -b_product))
        return tl.sum(b_product, 1).to(tl.float64) + tl.sum(b_rest, 1)
    else:
        return tl.sum(b_p * (b_x - b_start[:, None]), 1)
