"""What the scores of a row have in common in the backward pass, in one sum or to the last place."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.attention.common.numerics.constants import TO_BASE_2
from kernels.attention.common.numerics.products import head_product
from kernels.attention.common.packed.sequences import bounds
from kernels.attention.common.scores import (
    LARGEST,
    Scores,
    is_far,
    left_of,
    modified,
    of_head,
    place,
)
from kernels.device.products import sum_type

from .tiles import less_dlse, load_rows, shifted, weighted_differences


@triton.jit
def attention_backward_delta(
    out,
    dout,
    lse,
    dlse,
    delta,
    out_strides,
    dout_strides,
    heads,
    seqlen_q,
    HEAD_DIM_V: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    MARKED: tl.constexpr,
):
    """delta = rowsum(out * dout) - dlse: what every score of a row has in common; with MARKED -dlse
    alone of rows that lse marks (common/numerics/heavy_rows.py). ``delta`` may be dlse's memory."""
    n_blocks = tl.cdiv(seqlen_q, BLOCK_M)
    i_row = tl.program_id(0) % n_blocks * BLOCK_M
    i_bh = tl.program_id(0) // n_blocks
    i_b = i_bh // heads
    i_h = i_bh % heads
    b_out = load_rows(out, i_b, i_row, i_h, seqlen_q, out_strides, HEAD_DIM_V, BLOCK_M, BLOCK_DV)
    b_dout = load_rows(dout, i_b, i_row, i_h, seqlen_q, dout_strides, HEAD_DIM_V, BLOCK_M, BLOCK_DV)
    b_delta = tl.sum(b_out.to(tl.float32) * b_dout.to(tl.float32), 1)
    o_m = i_row + tl.arange(0, BLOCK_M)
    o_bh = i_bh.to(tl.int64) * seqlen_q
    in_m = o_m < seqlen_q
    b_lse = tl.load(lse + o_bh + o_m, mask=in_m, other=0.0)
    b_delta = less_dlse(b_delta, b_lse, dlse, o_bh, o_m, in_m, MARKED)
    if MARKED:
        tl.debug_barrier()  # threads share rows
    tl.store(delta + o_bh + o_m, b_delta, mask=in_m)


@triton.jit
def beside(b_x, FP32: tl.constexpr):
    """The whole number that shifts exponents of at most b_x. In fp32 the next below: numbers nearer
    to 0 hold more places, and weights up to 2 as many as those up to 1. What is rounded to 16 bits
    afterwards has places to spare: there the next above, in the code that was measured."""
    return tl.floor(b_x) if FP32 else tl.ceil(b_x)


@triton.jit
def attention_backward_rows(
    q,
    k,
    v,
    out,
    dout,
    dlse,
    lse,
    far,
    shift,
    delta,
    total,
    sequences,
    strides,
    n_blocks,
    heads,
    heads_per_kv,
    seqlen_q,
    seqlen_k,
    tokens,
    causal_offset,
    left_offset,
    scale,
    asked,
    blocks,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_V: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """delta, and shift and total by which a score is a weight, 2^(score log2(e) - shift) / total,
    from the very products the gradients are made of.

    The log-sum-exp would do for the shift, but log(n) above n scores alike, and a weight of 1/n
    loses the places of that in its exponent. The formula subtracts the maximum; here it is the
    whole number next above, from which another one is moved to without a rounding.

    The softmax gradient p * (dp - delta) is a difference that has to vanish where a row sees one
    key, so delta may not be rounded in another order than dp is: rowsum(out * dout) is only the
    start, to which the weighted mean of what dp differs by is added. Where fp32 products are added
    up in fp64, all of it stays fp64 until the gradients' products are there.

    ``n_blocks`` of a head's blocks of rows are visited, from the first on. Without ``shift`` and
    ``total`` delta alone is written, less dlse, as ``attention_backward_delta`` does. With ``far``
    only rows count that portable/backward/far_rows.py tells, the others' weights are 0.

    Where scores may lie far from 0 the shift is the maximum itself, not an exponent of 2.
    """
    cu_q, cu_k = sequences
    i_row = tl.program_id(0) % n_blocks * BLOCK_M
    i_bh = tl.program_id(0) // n_blocks
    i_b = i_bh // heads
    i_h = i_bh % heads
    i_kv = i_h // heads_per_kv
    o_bh = i_bh.to(tl.int64) * seqlen_q + i_row
    if far is not None:  # noqa: SIM102
        if (tl.load(far + 2 * i_bh) >= i_row + BLOCK_M) | (tl.load(far + 2 * i_bh + 1) <= i_row):
            return
    if cu_q is not None:
        o_q, seqlen_q = bounds(cu_q, i_b)
        o_k, seqlen_k = bounds(cu_k, i_b)
        if i_row >= seqlen_q:
            return
        q += o_q.to(tl.int64) * strides.q.row
        k += o_k.to(tl.int64) * strides.k.row
        v += o_k.to(tl.int64) * strides.v.row
        dout += o_q.to(tl.int64) * strides.dout.row
        out += o_q.to(tl.int64) * strides.out.row
        o_bh = i_h.to(tl.int64) * tokens + o_q + i_row
        causal_offset += seqlen_k - seqlen_q
        if left_offset is not None:
            left_offset += seqlen_k - seqlen_q
    own = of_head(asked, blocks, i_b, i_h, i_row)
    scores = Scores(asked, blocks, own, seqlen_k - seqlen_q, seqlen_q, seqlen_k, None, i_bh)
    # [BLOCK_M, BLOCK_D]
    b_q = load_rows(q, i_b, i_row, i_h, seqlen_q, strides.q, HEAD_DIM, BLOCK_M, BLOCK_D)
    b_dout = load_rows(dout, i_b, i_row, i_h, seqlen_q, strides.dout, HEAD_DIM_V, BLOCK_M, BLOCK_DV)
    b_out = load_rows(out, i_b, i_row, i_h, seqlen_q, strides.out, HEAD_DIM_V, BLOCK_M, BLOCK_DV)
    b_start = tl.sum(b_out.to(tl.float32) * b_dout.to(tl.float32), 1)
    o_m = tl.arange(0, BLOCK_M)
    o_n = tl.arange(0, BLOCK_N)
    in_m = i_row + o_m < seqlen_q
    b_shift = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    # Sums of sums of tiles, which one after the other would round once a tile.
    FP32: tl.constexpr = b_q.dtype == tl.float32
    FAR: tl.constexpr = is_far(None if asked.bias is None else asked.bias.dtype)
    # What a score is in, and what that is in exponents of 2.
    UNIT: tl.constexpr = 1.0 if FAR else TO_BASE_2
    EXPONENT: tl.constexpr = TO_BASE_2 if FAR else 1.0
    VALUE: tl.constexpr = sum_type(b_q.dtype)
    b_total = tl.zeros([BLOCK_M], dtype=tl.float64)
    b_more = tl.zeros([BLOCK_M], dtype=tl.float64)
    if asked.sinks is not None:
        # A score of its own, whose dp is 0; the same in every row, where a rounding would add up.
        b_sink = tl.load(asked.sinks + i_h).to(tl.float64) * UNIT
        b_whole = b_sink if FAR else beside(b_sink, FP32)
        b_shift = tl.maximum(b_shift, b_whole.to(tl.float32))
        b_total += tl.where(b_sink == float("-inf"), 0.0, tl.exp2(b_sink - b_whole))
        b_more -= b_total * b_start
    o_end = seqlen_k
    if CAUSAL:
        o_end = tl.minimum(seqlen_k, i_row + BLOCK_M + causal_offset)
    o_first = 0
    if left_offset is not None:
        o_first = tl.maximum(i_row + left_offset, 0) // BLOCK_N * BLOCK_N
    if blocks.listed is not None:
        o_first = 0
        o_end = tl.load(scores.own.blocks) * blocks.span
    unit = scale if asked.factor is None else 1.0
    for i in range(o_first, o_end, BLOCK_N):
        i_n = place(scores, i)
        # [BLOCK_N, BLOCK_D]
        b_k = load_rows(k, i_b, i_n, i_kv, seqlen_k, strides.k, HEAD_DIM, BLOCK_N, BLOCK_D)
        b_v = load_rows(v, i_b, i_n, i_kv, seqlen_k, strides.v, HEAD_DIM_V, BLOCK_N, BLOCK_DV)
        b_s = head_product(b_q, b_k, WIDE=True)
        b_s, _ = modified(
            b_s, scores, i_row, o_m[:, None], i_n, o_n[None, :], b_k.dtype == tl.float32
        )
        b_s = b_s.to(VALUE)
        b_dp = head_product(b_dout, b_v, WIDE=True)
        b_dp = left_of(b_dp, scores, i_row, i_n, True)
        seen = i_n + o_n[None, :] < seqlen_k
        if CAUSAL:
            seen = seen & (i_n + o_n[None, :] <= i_row + o_m[:, None] + causal_offset)
        if left_offset is not None:
            seen = seen & (i_n + o_n[None, :] >= i_row + o_m[:, None] + left_offset)
        b_own = tl.where(seen, b_s.to(tl.float32) * (unit * UNIT), float("-inf"))
        b_most = tl.max(b_own, 1)
        b_own = tl.maximum(b_shift, b_most if FAR else beside(b_most, FP32))
        # A row that has seen no key yet is at -inf: subtract 0, or NaN would arise.
        b_finite = tl.where(b_own == float("-inf"), 0.0, b_own)
        if FAR and FP32:
            b_alpha = tl.exp2((b_shift - b_finite).to(tl.float64) * TO_BASE_2)
        else:
            b_alpha = tl.exp2((b_shift - b_finite) * EXPONENT).to(tl.float64)
        b_shift = b_own
        b_p = shifted(b_s, b_finite[:, None], seen, unit, True, FP32, FAR)
        # A rounding of the sum would be in all weights of its row.
        b_sum = tl.sum(b_p.to(tl.float64) if FP32 else b_p, 1)
        b_total = b_total * b_alpha + b_sum
        b_more *= b_alpha
        b_more += weighted_differences(b_p, b_dp, b_start, asked.seed is not None)
    b_total = tl.where(b_total == 0.0, 1.0, b_total)
    b_delta = b_start + b_more / b_total
    if dlse is not None:
        b_delta -= tl.load(dlse + o_bh + o_m, mask=in_m, other=0.0)
    tl.store(delta + o_bh + o_m, b_delta.to(delta.dtype.element_ty), mask=in_m)
    if total is not None:
        tl.store(total + o_bh + o_m, b_total.to(total.dtype.element_ty), mask=in_m)
        # A row without a key has weights of 0.
        b_shift = tl.where(b_shift == float("-inf"), float("inf"), b_shift)
        if far is not None:
            is_own = tl.load(lse + o_bh + o_m, mask=in_m, other=0.0) == LARGEST
            b_shift = tl.where(is_own, b_shift, float("inf"))
        tl.store(shift + o_bh + o_m, b_shift, mask=in_m)
