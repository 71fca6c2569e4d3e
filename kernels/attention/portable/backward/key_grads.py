"""Gradients of keys and values: a block of keys a program, walking the queries."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.attention.common.masks import since, up_to
from kernels.attention.common.numerics.products import head_product
from kernels.attention.common.packed.sequences import bounds, length
from kernels.attention.common.program_order import taken
from kernels.attention.common.scores import (
    LARGEST,
    OfHead,
    Scores,
    dropped,
    is_far,
    kept,
    marked,
    modified,
    of_head,
    place,
)
from kernels.attention.portable.tile import Place, tile_of
from kernels.device.products import add_product, sum_type

from .tiles import divided, exponents, load_both, load_rows, shifted, weights


@triton.jit
def load_of_rows(at, in_m, other, WHOLE: tl.constexpr):
    """A number a row; ``other`` where it is not ``in_m``, unless the block is WHOLE."""
    return tl.load(at) if WHOLE else tl.load(at, mask=in_m, other=other)


@triton.jit
def accumulate_kv(
    b_k,
    b_v,
    b_dk,
    b_dv,
    q,
    dout,
    lse,
    delta,
    total,
    dlse,
    at,
    o_bh,
    o_first,
    o_end,
    strides,
    seqlen_q,
    scale,
    scores,
    TILE: tl.constexpr,
    EVEN: tl.constexpr,
    ROWS: tl.constexpr,
    TMA: tl.constexpr,
    BRANCH: tl.constexpr,
    n_heads=None,
    stride_head=None,
):
    """Add what the queries from ``o_first`` up to ``o_end`` give to a block of keys and values: of
    one head or, unless that is None, of ``n_heads``, ``stride_head`` apart in lse and delta."""
    BLOCK_M: tl.constexpr = TILE.BLOCK_M
    BLOCK_N: tl.constexpr = TILE.BLOCK_N
    MASKED: tl.constexpr = TILE.CAUSAL
    i_b, i_h, o_column, causal_offset, left_offset = at
    o_m = tl.arange(0, BLOCK_M)
    o_n = tl.arange(0, BLOCK_N)
    EXACT: tl.constexpr = total is not None
    WHOLE: tl.constexpr = EVEN or ROWS > 0
    FAR: tl.constexpr = is_far(None if scores.asked.bias is None else scores.asked.bias.dtype)
    # Behind the product delta has the registers of the exponents. Measured on sm_90: at head dim
    # 128 waiting for it there costs 2 %, at 64 a third program fits a multiprocessor.
    LATE: tl.constexpr = ROWS > 0 and TILE.BLOCK_D != 128
    # The queries that see these keys: the first ones and, in a window, the last.
    b_first = o_column - causal_offset + o_n
    b_last = None if left_offset is None else o_column - left_offset + o_n
    o_stop = o_end
    i_walked = o_first
    o_head = 0  # 32 bits: of more rows a group of heads holds more than a device
    if n_heads is not None:
        o_stop = o_first + tl.maximum(tl.cdiv(o_end - o_first, BLOCK_M), 0) * BLOCK_M * n_heads
    for i in range(o_first, o_stop, BLOCK_M):
        i_m = place(scores, i) if n_heads is None else i_walked
        # [BLOCK_M, BLOCK_D]
        b_q, b_dout = load_both(
            q, dout, i_b, i_m, i_h, seqlen_q, strides.q, strides.dout, TILE, BLOCK_M, TMA
        )
        in_m = i_m + o_m < seqlen_q
        b_lse = load_of_rows(lse + (o_head + i_m) + o_m, in_m, LARGEST, WHOLE)
        if not LATE:
            b_delta = load_of_rows(delta + (o_head + i_m) + o_m, in_m, 0.0, WHOLE)
        # [BLOCK_N, BLOCK_M]
        # With EXACT as the queries' kernel multiplies them, so that both round alike.
        if EXACT:
            b_s = head_product(b_q, b_k, WIDE=True).T
        else:
            b_s = tl.dot(b_k, b_q.T, input_precision="ieee")
        b_s, b_slope = modified(
            b_s, scores, i_m, o_m[None, :], o_column, o_n[:, None], b_k.dtype == tl.float32
        )
        # (keys, queries): from ``b_first`` of each key on and, in a window, up to ``b_last``.
        if BRANCH or ROWS > 0:
            seen = since(b_first - i_m, BLOCK_M)
        else:  # found with the compiler: unlike head dims spill 4 bytes on sm_100 by the other form
            seen = o_column + o_n[:, None] <= i_m + o_m[None, :] + causal_offset
        if left_offset is not None and not BRANCH:
            if ROWS > 0:
                within = up_to(b_last - i_m, BLOCK_M)
            else:
                within = o_column + o_n[:, None] >= i_m + o_m[None, :] + left_offset
            seen = seen & within if MASKED else within
        if EXACT:
            b_s = b_s.to(sum_type(b_k.dtype))
            HIDDEN: tl.constexpr = MASKED or left_offset is not None
            b_p = shifted(b_s, b_lse[None, :], seen, scale, HIDDEN, b_k.dtype == tl.float32, FAR)
            b_total = tl.load(total + o_bh + i_m + o_m, mask=in_m, other=1.0)
            b_p = divided(b_p, b_total[None, :])
        else:
            b_exponent = b_lse if ROWS > 0 else exponents(b_lse)
            HIDES: tl.constexpr = not BRANCH and (MASKED or left_offset is not None)
            b_p = weights(b_s, b_exponent[None, :], seen, scale, HIDES)
            # With BRANCH masked only where a tile meets an end of what is seen. One condition of
            # constants and values would be a value.
            if BRANCH and MASKED:  # noqa: SIM102
                if i_m < o_column - causal_offset + BLOCK_N - 1:
                    b_p = tl.where(seen, b_p, 0.0)
            if BRANCH and left_offset is not None:  # noqa: SIM102
                if i_m + BLOCK_M - 1 > o_column - left_offset:
                    within = up_to(b_last - i_m, BLOCK_M)
                    b_p = tl.where(within, b_p, 0.0)
        if scores.asked.seed is not None:
            b_keep = kept(scores, i_m, o_column, BLOCK_M, BLOCK_N, sum_type(b_q.dtype)).T
            b_kept = dropped(b_p, b_keep, scores)
            if not EXACT:
                b_p = marked(b_p, b_keep)
        else:
            b_kept = b_p
        if not EXACT:
            # Here, so that not both of them take registers beside the product.
            b_p *= b_slope
        b_dv = add_product(b_dv, b_kept, b_dout)
        if EXACT:
            b_dp = head_product(b_dout, b_v, WIDE=True).T
            if scores.asked.seed is not None:
                b_dp = dropped(b_dp, b_keep, scores, True)
            b_ds = b_dp - b_delta[None, :]
            if dlse is not None:
                b_ds += tl.load(dlse + o_bh + i_m + o_m, mask=in_m, other=0.0)[None, :]
            b_ds *= b_p
        else:
            b_dp = tl.dot(b_v, b_dout.T, input_precision="ieee")
            if LATE:
                b_delta = load_of_rows(delta + (o_head + i_m) + o_m, in_m, 0.0, WHOLE)
            if scores.asked.seed is not None:
                b_dp = dropped(b_dp, b_p.to(tl.int32, bitcast=True) >= 0, scores)
                b_p = tl.abs(b_p)
            b_ds = b_p * (b_dp - b_delta[None, :])
        b_dk = add_product(b_dk, b_ds * b_slope if EXACT else b_ds, b_q)
        if n_heads is not None:
            is_last = i_walked + BLOCK_M >= o_end
            i_walked = tl.where(is_last, o_first, i_walked + BLOCK_M)
            i_h += tl.where(is_last, 1, 0)
            o_head += tl.where(is_last, stride_head, 0)
    return b_dk, b_dv


@triton.jit
def attention_backward_kv(
    q,
    k,
    v,
    dout,
    lse,
    delta,
    total,
    dlse,
    dk,
    dv,
    far,
    sequences,
    strides,
    kv_heads,
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
    EVEN: tl.constexpr,
    ROWS: tl.constexpr,
    TMA: tl.constexpr,
    BRANCH: tl.constexpr,
    FLAT: tl.constexpr,
    TOGETHER: tl.constexpr,
):
    """Gradients of BLOCK_N keys and values of one head; dk and dv are contiguous.

    With ``total``, which portable/backward/row_stats.py tells, lse is its shift; without, delta
    holds dlse. ROWS > 0 says that lse and delta are what attention_backward_q wrote: the first
    already as an exponent of 2, both in blocks of ROWS rows that no two sequences share, rows
    beyond the last with weights of 0: no masks, and whole vectors. A head has ``tokens`` rows in
    them. With far (portable/backward/far_rows.py) what those rows give is added to what is there.
    """
    cu_q, cu_k = sequences
    n_blocks = tl.cdiv(seqlen_k, BLOCK_N)
    i_n, i_bk = taken(tl.program_id(0), n_blocks, TOGETHER)
    i_n *= BLOCK_N
    i_b = i_bk // kv_heads
    i_kv = i_bk % kv_heads
    i_at = i_b
    before = i_b * kv_heads * heads_per_kv
    o_row = 0
    if far is not None:
        n_far = 0
        for i_h in range(before + i_kv * heads_per_kv, before + (i_kv + 1) * heads_per_kv):
            n_far += tl.load(far + 2 * i_h + 1)
        if n_far == 0:
            return
    if cu_q is not None:
        before = 0
        o_q, seqlen_q = bounds(cu_q, i_b)
        o_row = o_q if ROWS == 0 else (o_q // ROWS + i_b) * ROWS
        o_k, seqlen_k = bounds(cu_k, i_b)
        if i_n >= seqlen_k:
            return
        k += o_k.to(tl.int64) * strides.k.row
        v += o_k.to(tl.int64) * strides.v.row
        if TMA:
            i_at = o_q
        else:
            q += o_q.to(tl.int64) * strides.q.row
            dout += o_q.to(tl.int64) * strides.dout.row
        causal_offset += seqlen_k - seqlen_q
        if left_offset is not None:
            left_offset += seqlen_k - seqlen_q
    # [BLOCK_N, BLOCK_D]
    b_k = load_rows(k, i_b, i_n, i_kv, seqlen_k, strides.k, HEAD_DIM, BLOCK_N, BLOCK_D)
    b_v = load_rows(v, i_b, i_n, i_kv, seqlen_k, strides.v, HEAD_DIM_V, BLOCK_N, BLOCK_DV)
    b_dk = tl.zeros([BLOCK_N, BLOCK_D], dtype=sum_type(b_k.dtype))
    b_dv = tl.zeros([BLOCK_N, BLOCK_DV], dtype=sum_type(b_k.dtype))

    o_first = 0
    if CAUSAL:
        o_first = tl.maximum(i_n - causal_offset, 0) // BLOCK_M * BLOCK_M
    o_end = seqlen_q
    if left_offset is not None:
        o_end = tl.minimum(seqlen_q, i_n + BLOCK_N - left_offset)
    TILE: tl.constexpr = tile_of(HEAD_DIM, HEAD_DIM_V, BLOCK_M, BLOCK_N, BLOCK_D, BLOCK_DV, CAUSAL)
    first_head = i_kv * heads_per_kv
    unit = scale if asked.factor is None else 1.0
    if FLAT:
        i_h = first_head
        o_bh = (before + i_h).to(tl.int64) * tokens + o_row
        scores = Scores(
            asked, blocks, OfHead(0, 0, 0, 0), seqlen_k - seqlen_q, seqlen_q, seqlen_k, None, i_h
        )
        at = Place(i_at, i_h, i_n, causal_offset, left_offset)
        b_dk, b_dv = accumulate_kv(
            b_k, b_v, b_dk, b_dv, q, dout, lse + o_bh, delta + o_bh, total, dlse, at, o_bh, o_first,
            o_end, strides, seqlen_q, unit, scores, TILE, EVEN, ROWS, TMA, BRANCH, heads_per_kv,
            tokens,
        )  # fmt: skip
    for i_h in range(first_head, first_head + (0 if FLAT else heads_per_kv)):
        o_bh = (before + i_h).to(tl.int64) * tokens + o_row
        # Anew for each head: else masks of the first queries, one a column, stay in registers.
        rows = seqlen_q if cu_q is None else length(cu_q, i_b, o_q, VOLATILE=True)
        i_score = i_b * kv_heads * heads_per_kv + i_h
        own = of_head(asked, blocks, i_b, i_h, i_n)
        scores = Scores(asked, blocks, own, seqlen_k - seqlen_q, seqlen_q, seqlen_k, None, i_score)
        if blocks.listed is not None:
            o_first = 0
            o_end = tl.load(scores.own.blocks) * blocks.span
        o_start = o_first
        o_stop = o_end
        if far is not None and blocks.listed is None:
            o_far = tl.load(far + 2 * (before + i_h)) // BLOCK_M * BLOCK_M
            o_start = tl.maximum(o_first, o_far)
            o_stop = tl.minimum(o_end, tl.load(far + 2 * (before + i_h) + 1))
        at = Place(i_at, i_h, i_n, causal_offset, left_offset)
        b_dk, b_dv = accumulate_kv(
            b_k, b_v, b_dk, b_dv, q, dout, lse + o_bh, delta + o_bh, total, dlse, at, o_bh, o_start,
            o_stop, strides, rows, unit, scores, TILE, EVEN, ROWS, TMA, BRANCH,
        )  # fmt: skip

    # Found again, by way of what is 0 though no compiler knows (the grid has one axis): kept from
    # the beginning on, it would take registers, which the loops have none for.
    i_n, i_bk = taken(tl.program_id(0) + tl.program_id(1), n_blocks, TOGETHER)
    i_n *= BLOCK_N
    i_b = i_bk // kv_heads
    i_kv = i_bk % kv_heads
    o_kv = i_b.to(tl.int64) * seqlen_k + i_n
    if cu_k is not None:
        o_k, seqlen_k = bounds(cu_k, i_b)
        o_kv = o_k.to(tl.int64) + i_n
    o_n = tl.arange(0, BLOCK_N) + tl.program_id(1)
    o_d = tl.arange(0, BLOCK_D)
    o_dv = tl.arange(0, BLOCK_DV)
    o_kv = o_kv * kv_heads + i_kv
    o_tile = o_n[:, None] * kv_heads * HEAD_DIM + o_d[None, :]
    o_tile_v = o_n[:, None] * kv_heads * HEAD_DIM_V + o_dv[None, :]
    inside = (o_n[:, None] < seqlen_k - i_n) & (o_d[None, :] < HEAD_DIM)
    inside_v = (o_n[:, None] < seqlen_k - i_n) & (o_dv[None, :] < HEAD_DIM_V)
    b_dk = b_dk.to(tl.float32) * scale
    if far is not None:
        b_dk += tl.load(dk + o_kv * HEAD_DIM + o_tile, mask=inside, other=0.0)
        b_dv += tl.load(dv + o_kv * HEAD_DIM_V + o_tile_v, mask=inside_v, other=0.0)
    tl.store(dk + o_kv * HEAD_DIM + o_tile, b_dk.to(dk.dtype.element_ty), mask=inside)
    tl.store(dv + o_kv * HEAD_DIM_V + o_tile_v, b_dv.to(dv.dtype.element_ty), mask=inside_v)
