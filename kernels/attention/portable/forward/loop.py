"""What a block of query rows sees: the loop over keys of the forward pass every target runs."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.attention.common.masks import up_to
from kernels.attention.common.numerics.products import head_product
from kernels.attention.common.packed.sequences import load_tile
from kernels.attention.common.scores import finite, is_far, left_of, modified, place
from kernels.device.products import add_product


@triton.jit
def load_keys(at, in_columns, in_rows, MASKED: tl.constexpr, WHOLE: tl.constexpr):
    """A tile of keys or values: zeros beyond the last row if MASKED, and beyond the last column
    unless the tile is WHOLE."""
    if MASKED:
        return tl.load(at, mask=in_columns & in_rows, other=0.0)
    elif WHOLE:
        return tl.load(at)
    else:
        return tl.load(at, mask=in_columns, other=0.0)


@triton.jit
def attend(
    b_q,
    b_out,
    b_max,
    b_sum,
    k,
    v,
    at,
    o_first,
    o_inner,
    o_full,
    o_end,
    strides,
    scale_log,
    scores,
    TILE: tl.constexpr,
    MASKED: tl.constexpr,
    PRESCALE: tl.constexpr,
    TMA: tl.constexpr,
    OFFSET: tl.constexpr,
):
    """Let the rows of ``at`` see the keys from ``o_first`` up to ``o_end``.

    ``k`` and ``v`` are pointers to their head or, with TMA, descriptors of the whole tensors, of
    which ``at.i_b`` stands for what it does for ``load_tile``.

    Without MASKED every row sees every one of them, and no comparison is spent on that; unless
    ``o_full`` is None, neither is any from ``o_inner`` up to ``o_full``. With OFFSET, for fp8,
    weights are computed so many powers of 2 larger (portable/forward/fp8.py).
    """
    o_row, left_offset, seqlen_k = at.o_own, at.left_offset, scores.columns
    BLOCK_N: tl.constexpr = TILE.BLOCK_N
    NATURAL: tl.constexpr = b_q.dtype == tl.float32
    o_m = tl.arange(0, TILE.BLOCK_M)
    o_n = tl.arange(0, BLOCK_N)
    o_d = tl.arange(0, TILE.BLOCK_D)
    o_dv = tl.arange(0, TILE.BLOCK_DV)
    in_d = o_d < TILE.HEAD_DIM
    in_dv = o_dv < TILE.HEAD_DIM_V
    FAR: tl.constexpr = is_far(None if scores.asked.bias is None else scores.asked.bias.dtype)
    # Only the scalar base advances: a tile of offsets costs half the registers of one of pointers.
    o_k = o_d[:, None] * strides.k.column + o_n[None, :] * strides.k.row
    o_v = o_n[:, None] * strides.v.row + o_dv[None, :] * strides.v.column
    if TILE.CAUSAL:
        b_last = tl.minimum(o_row + o_m + at.causal_offset, seqlen_k - 1)
    if not TMA and scores.blocks.listed is None:
        k += tl.cast(o_first, tl.int64) * strides.k.row
        v += tl.cast(o_first, tl.int64) * strides.v.row
    for i in range(o_first, o_end, BLOCK_N):
        i_n = place(scores, i)
        if scores.blocks.listed is not None and not TMA:
            k_at = k + i_n.to(tl.int64) * strides.k.row
            v_at = v + i_n.to(tl.int64) * strides.v.row
        else:
            k_at = k
            v_at = v
        in_n = o_n < seqlen_k - i_n
        # [BLOCK_D, BLOCK_N]
        if TMA:
            b_k = load_tile(k, at.i_b, i_n, at.i_h, seqlen_k, BLOCK_N, TILE.BLOCK_D).T
        else:
            WHOLE: tl.constexpr = TILE.BLOCK_D == TILE.HEAD_DIM
            b_k = load_keys(k_at + o_k, in_d[:, None], in_n[None, :], MASKED, WHOLE)
        b_s = head_product(b_q, b_k.T) if NATURAL else tl.dot(b_q, b_k, input_precision="ieee")
        if PRESCALE:
            b_s *= scale_log
        b_s, _ = modified(b_s, scores, o_row, o_m[:, None], i_n, o_n[None, :], NATURAL)
        if MASKED and o_full is None:
            seen = up_to(b_last - i_n, BLOCK_N) if TILE.CAUSAL else in_n[None, :]
            if left_offset is not None:
                seen = seen & (i_n + o_n[None, :] >= o_row + o_m[:, None] + left_offset)
            b_s = tl.where(seen, b_s, float("-inf"))
        elif MASKED:
            if i_n >= o_full:
                seen = up_to(b_last - i_n, BLOCK_N) if TILE.CAUSAL else in_n[None, :]
                b_s = tl.where(seen, b_s, float("-inf"))
            if left_offset is not None:  # noqa: SIM102
                if i_n < o_inner:
                    # Measured: masks.since takes fewer instructions and 2 to 3 % more time.
                    seen = i_n + o_n[None, :] >= o_row + o_m[:, None] + left_offset
                    b_s = tl.where(seen, b_s, float("-inf"))

        # A positive scale commutes with the maximum: one fused multiply-add a score. Of scores far
        # from 0 that product is rounded by more than a weight bears: there the maximum, which is
        # none, is subtracted first.
        scale = 1.0 if PRESCALE or FAR else scale_log
        if NATURAL:
            # Rounded here, as no compiler may take an addition of 0 for none: fused with the
            # subtraction, the product of the largest score less its own rounding would not be 0,
            # and a row of one heavy weight not its value.
            b_s = tl.fma(b_s, scale, 0.0)
            scale = 1.0
        b_max_new = tl.maximum(b_max, tl.max(b_s, 1) * scale)
        b_max_new = finite(b_max_new, MASKED or scores.asked.bias is not None)
        if NATURAL:
            b_p = tl.exp(b_s - b_max_new[:, None])
            b_alpha = tl.exp(b_max - b_max_new)
        elif FAR:
            b_p = tl.exp2((b_s - b_max_new[:, None]) * scale_log)
            b_alpha = tl.exp2((b_max - b_max_new) * scale_log)
        else:
            b_shift = b_max_new - OFFSET if OFFSET > 0 else b_max_new
            b_p = tl.exp2(b_s * scale - b_shift[:, None])
            b_alpha = tl.exp2(b_max - b_max_new)
        b_sum = b_sum * b_alpha.to(b_sum.dtype) + tl.sum(b_p, 1)
        b_out = b_out * b_alpha.to(b_out.dtype)[:, None]
        b_p = left_of(b_p, scores, o_row, i_n, False, b_out.dtype)
        b_max = b_max_new
        # [BLOCK_N, BLOCK_DV]
        if TMA:
            b_v = load_tile(v, at.i_b, i_n, at.i_h, seqlen_k, BLOCK_N, TILE.BLOCK_DV)
        else:
            WHOLE_V: tl.constexpr = TILE.BLOCK_DV == TILE.HEAD_DIM_V
            b_v = load_keys(v_at + o_v, in_dv[None, :], in_n[:, None], MASKED, WHOLE_V)
        if OFFSET > 0:
            # Not as the product's accumulator: while Hopper's fp8 products add, they keep 14 bits.
            # So the keys of a block are added there, and the blocks in fp32.
            b_out += tl.dot(b_p.to(b_v.dtype), b_v)
        else:
            b_out = add_product(b_out, b_p.to(b_v.dtype), b_v)
        if not TMA and scores.blocks.listed is None:
            k += BLOCK_N * strides.k.row
            v += BLOCK_N * strides.v.row
    return b_out, b_max, b_sum
