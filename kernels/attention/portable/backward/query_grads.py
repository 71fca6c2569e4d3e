"""Gradients of queries: a block of queries a program, walking the keys."""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

from kernels.attention.common.masks import keys_walked, since, up_to
from kernels.attention.common.numerics.constants import TO_BASE_2
from kernels.attention.common.numerics.products import head_product
from kernels.attention.common.packed.sequences import bounds
from kernels.attention.common.program_order import taken
from kernels.attention.common.scores import (
    LARGEST,
    Scores,
    is_far,
    left_of,
    modified,
    of_head,
    place,
    store_bias_gradient,
)
from kernels.attention.portable.tile import Place, tile_of
from kernels.device.products import add_product, sum_type

from .tiles import divided, exponents, less_dlse, load_both, load_rows, shifted, weights


class Rows(NamedTuple):
    """A block of queries with what else a program has of it; ``own`` are rows that are served, None
    where all are. Triton makes no plain tuple of None."""

    b_q: Any
    b_dout: Any
    b_lse: Any
    b_delta: Any
    b_total: Any
    b_dlse: Any
    dots: Any
    own: Any


@triton.jit
def accumulate_q(
    b_dq,
    b_dots,
    rows,
    k,
    v,
    at,
    o_first,
    o_inner,
    o_full,
    o_end,
    strides,
    scale,
    scores,
    TILE: tl.constexpr,
    MASKED: tl.constexpr,
    TMA: tl.constexpr,
):
    """Add what the keys from ``o_first`` up to ``o_end`` give to a block of queries; MASKED, unless
    ``o_full`` is None, but from ``o_inner`` up to there."""
    BLOCK_M: tl.constexpr = TILE.BLOCK_M
    BLOCK_N: tl.constexpr = TILE.BLOCK_N
    b_q, b_dout, b_lse, b_delta, b_total, b_dlse, dots, own = rows
    i_b, i_kv, o_row, causal_offset, left_offset = at
    seqlen_k = scores.columns
    o_m = tl.arange(0, BLOCK_M)
    o_n = tl.arange(0, BLOCK_N)
    FAR: tl.constexpr = is_far(None if scores.asked.bias is None else scores.asked.bias.dtype)
    if TILE.CAUSAL:
        b_last = tl.minimum(o_row + o_m + causal_offset, seqlen_k - 1)
    if left_offset is not None:
        b_first = o_row + o_m + left_offset
    for i in range(o_first, o_end, BLOCK_N):
        i_n = place(scores, i)
        # [BLOCK_N, BLOCK_D]
        b_k, b_v = load_both(
            k, v, i_b, i_n, i_kv, seqlen_k, strides.k, strides.v, TILE, BLOCK_N, TMA
        )
        # [BLOCK_M, BLOCK_N]
        b_s = head_product(b_q, b_k, WIDE=True)
        b_s, b_slope = modified(
            b_s, scores, o_row, o_m[:, None], i_n, o_n[None, :], b_k.dtype == tl.float32
        )
        b_dp = head_product(b_dout, b_v, WIDE=True)
        b_dp = left_of(b_dp, scores, o_row, i_n, b_total is not None, sum_type(b_k.dtype))
        seen = up_to(b_last - i_n, BLOCK_N) if TILE.CAUSAL else i_n + o_n[None, :] < seqlen_k
        if left_offset is not None and o_full is None:
            seen = seen & since(b_first - i_n, BLOCK_N)
        if b_total is not None:
            b_s = b_s.to(sum_type(b_k.dtype))
            b_p = shifted(b_s, b_lse[:, None], seen, scale, MASKED, b_k.dtype == tl.float32, FAR)
            b_p = divided(b_p, b_total[:, None])
        elif o_full is not None:
            b_p = weights(b_s, b_lse[:, None] * TO_BASE_2, seen, scale, False)
            if i_n >= o_full:
                b_p = tl.where(seen, b_p, 0.0)
            if left_offset is not None:  # noqa: SIM102
                if i_n < o_inner:
                    b_p = tl.where(since(b_first - i_n, BLOCK_N), b_p, 0.0)
        else:
            b_p = weights(b_s, b_lse[:, None] * TO_BASE_2, seen, scale, MASKED)
        if dots is not None:
            b_dots += tl.sum(b_p * b_dp, 1)
        b_ds = b_dp - b_delta[:, None]
        if b_dlse is not None:
            b_ds += b_dlse[:, None]
        b_ds = b_p * b_ds
        store_bias_gradient(b_ds, scores, own, o_row, o_m[:, None], i_n, o_n[None, :])
        b_dq = add_product(b_dq, b_ds * b_slope, b_k)
    return b_dq, b_dots


@triton.jit
def attention_backward_q(
    q,
    k,
    v,
    dout,
    lse,
    delta,
    total,
    dlse,
    dots,
    dq,
    dbias,
    out,
    exponent,
    far,
    sequences,
    strides,
    heads,
    heads_per_kv,
    seqlen_q,
    seqlen_k,
    tokens,
    rows,
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
    EVEN: tl.constexpr,
    ROWS: tl.constexpr,
    TMA: tl.constexpr,
    BRANCH: tl.constexpr,
    MARKED: tl.constexpr,
    TOGETHER: tl.constexpr,
):
    """Gradient of BLOCK_M queries of one head, contiguous; the rest as in
    portable/backward/key_grads.py. dbias is (batch, heads, seqlen_q, seqlen_k), contiguous; dots,
    of lse's shape, gets sums of p * dp. With out this kernel finds delta as
    ``attention_backward_delta`` does, and writes what it else reads. With
    exponent it writes that and delta as portable/backward/key_grads.py reads them, in blocks of
    ROWS, and has the number of a head's rows there in ``rows``. With far
    (portable/backward/far_rows.py) those rows alone are written."""
    cu_q, cu_k = sequences
    n_blocks = tl.cdiv(seqlen_q, BLOCK_M)
    i_m, i_bh = taken(tl.program_id(0), n_blocks, TOGETHER)
    if TOGETHER > 0:  # causal: the longest first
        i_m = n_blocks - 1 - i_m
    i_m *= BLOCK_M
    i_b = i_bh // heads
    i_h = i_bh % heads
    i_kv = i_h // heads_per_kv
    o_row = i_b.to(tl.int64) * seqlen_q + i_m
    i_at = i_b
    if far is not None:  # noqa: SIM102
        if (tl.load(far + 2 * i_bh) >= i_m + BLOCK_M) | (tl.load(far + 2 * i_bh + 1) <= i_m):
            return
    o_bh = i_bh.to(tl.int64) * seqlen_q + i_m
    if cu_q is not None:
        o_q, seqlen_q = bounds(cu_q, i_b)
        o_k, seqlen_k = bounds(cu_k, i_b)
        if i_m >= seqlen_q:
            return
        q += o_q.to(tl.int64) * strides.q.row
        dout += o_q.to(tl.int64) * strides.dout.row
        if out is not None:
            out += o_q.to(tl.int64) * strides.out.row
        if TMA:
            i_at = o_k
        else:
            k += o_k.to(tl.int64) * strides.k.row
            v += o_k.to(tl.int64) * strides.v.row
        o_row = o_q.to(tl.int64) + i_m
        o_bh = i_h.to(tl.int64) * tokens + o_row
        causal_offset += seqlen_k - seqlen_q
        if left_offset is not None:
            left_offset += seqlen_k - seqlen_q
    own = of_head(asked, blocks, i_b, i_h, i_m)
    b_dbias = None if dbias is None else dbias + i_bh.to(tl.int64) * seqlen_q * seqlen_k
    scores = Scores(asked, blocks, own, seqlen_k - seqlen_q, seqlen_q, seqlen_k, b_dbias, i_bh)
    # [BLOCK_M, BLOCK_D]
    b_q = load_rows(q, i_b, i_m, i_h, seqlen_q, strides.q, HEAD_DIM, BLOCK_M, BLOCK_D)
    b_dout = load_rows(dout, i_b, i_m, i_h, seqlen_q, strides.dout, HEAD_DIM_V, BLOCK_M, BLOCK_DV)
    o_m = tl.arange(0, BLOCK_M)
    in_m = i_m + o_m < seqlen_q
    b_lse = tl.load(lse + o_bh + o_m, mask=in_m, other=float("inf"))
    if out is not None:
        b_out = load_rows(out, i_b, i_m, i_h, seqlen_q, strides.out, HEAD_DIM_V, BLOCK_M, BLOCK_DV)
        b_delta = tl.sum(b_out.to(tl.float32) * b_dout.to(tl.float32), 1)
        b_delta = less_dlse(b_delta, b_lse, dlse, o_bh, o_m, in_m, MARKED)
        if exponent is None:
            if MARKED:
                tl.debug_barrier()  # delta is dlse's memory, threads share rows
            tl.store(delta + o_bh + o_m, b_delta, mask=in_m)
        else:
            o_own = i_bh.to(tl.int64) * rows + i_m
            if cu_q is not None:
                o_own = i_h.to(tl.int64) * rows + (o_q // ROWS + i_b) * ROWS + i_m
            in_block = i_m + o_m < tl.cdiv(seqlen_q, ROWS) * ROWS
            b_exponent = tl.where(in_m, exponents(b_lse), LARGEST)
            tl.store(exponent + o_own + o_m, b_exponent, mask=in_block)
            tl.store(delta + o_own + o_m, b_delta, mask=in_block)
    else:
        b_delta = tl.load(delta + o_bh + o_m, mask=in_m, other=0.0)
    b_dq = tl.zeros([BLOCK_M, BLOCK_D], dtype=sum_type(b_q.dtype))
    b_total = None if total is None else tl.load(total + o_bh + o_m, mask=in_m, other=1.0)
    NONE: tl.constexpr = total is None or dlse is None
    b_dlse = None if NONE else tl.load(dlse + o_bh + o_m, mask=in_m, other=0.0)
    # Without dots it goes through unused: triton 3.6 compiles no None among returned values.
    b_dots = tl.zeros([BLOCK_M], dtype=tl.float32)

    # Others have no weight.
    weighed = in_m & (b_lse != float("inf"))
    own_rows = None if far is None else weighed[:, None]
    # Keys any of these queries sees, and of those the whole blocks all of them see.
    o_first, o_inner, o_full, o_end = keys_walked(
        i_m, causal_offset, left_offset, scores, CAUSAL, BLOCK_M, BLOCK_N
    )
    unit = scale if asked.factor is None else 1.0
    at = Place(i_at, i_kv, i_m, causal_offset, left_offset)
    TILE: tl.constexpr = tile_of(HEAD_DIM, HEAD_DIM_V, BLOCK_M, BLOCK_N, BLOCK_D, BLOCK_DV, CAUSAL)
    own_block = Rows(b_q, b_dout, b_lse, b_delta, b_total, b_dlse, dots, own_rows)
    if BRANCH:
        b_dq, b_dots = accumulate_q(
            b_dq, b_dots, own_block, k, v, at, o_first, o_inner, o_full, o_end, strides, unit,
            scores, TILE, True, TMA,
        )  # fmt: skip
    else:
        if left_offset is not None and blocks.listed is None:
            o_full = tl.maximum(o_full, o_inner)
            b_dq, b_dots = accumulate_q(
                b_dq, b_dots, own_block, k, v, at, o_first, None, None, tl.minimum(o_inner, o_end),
                strides, unit, scores, TILE, True, TMA,
            )  # fmt: skip
        if blocks.listed is None:
            b_dq, b_dots = accumulate_q(
                b_dq, b_dots, own_block, k, v, at, o_inner, None, None, o_full, strides, unit,
                scores, TILE, False, TMA,
            )  # fmt: skip
        if CAUSAL or not EVEN or blocks.listed is not None:
            b_dq, b_dots = accumulate_q(
                b_dq, b_dots, own_block, k, v, at, o_full, None, None, o_end, strides, unit, scores,
                TILE, True, TMA,
            )  # fmt: skip

    if dots is not None:
        tl.store(dots + o_bh + o_m, b_dots, mask=in_m if far is None else weighed)
    o_d = tl.arange(0, BLOCK_D)
    o_row = o_row * heads + i_h
    tl.store(
        dq + o_row * HEAD_DIM + (o_m[:, None] * heads * HEAD_DIM + o_d[None, :]),
        (b_dq.to(tl.float32) * scale).to(dq.dtype.element_ty),
        mask=(in_m if far is None else weighed)[:, None] & (o_d[None, :] < HEAD_DIM),
    )
