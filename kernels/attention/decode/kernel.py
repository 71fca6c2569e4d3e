"""Attention over a key-value cache: few query rows, the keys split over programs, a combine step.

A program owns the queries of all heads that share one key head, and reads one part of that head's
keys: every key is read once. The combine step (decode/combine.py) adds the parts.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.attention.common.addressing import wide_columns, wide_rows
from kernels.attention.common.numerics.constants import TO_BASE_2
from kernels.attention.common.numerics.e4m3 import both_widened, in_fp16
from kernels.attention.common.numerics.products import head_product
from kernels.attention.common.scores import finite, tanh
from kernels.device.products import add_product, sum_type

from .cache import (
    chunk_of,
    head_scale,
    keys_before,
    keys_in_cache,
    lead,
    pages,
    parts_of,
    queries_of,
    row_in_cache,
    row_of,
    trail,
)
from .combine import finished
from .rotary import load_rotated
from .tiles import as_operand, block_at, load_tokens


@triton.jit(do_not_specialize=["length", "added"])
def attention_kvcache(
    q,
    qv,
    k,
    v,
    out,
    lse,
    part,
    stats,
    given,
    length,
    added,
    strides,
    positions,
    kv_heads,
    splits,
    seqlen_q,
    tokens,
    capacity,
    sight,
    scale,
    softcap,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_V: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    CAUSAL: tl.constexpr,
    NATURAL: tl.constexpr,
    ROTARY: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    FP8: tl.constexpr,
    PAIRS: tl.constexpr,
    TURNED: tl.constexpr,
    EARLY: tl.constexpr,
    AFTER: tl.constexpr,
    FAR: tl.constexpr,
):
    """Row r of a tile is query token r // GROUP of head r % GROUP of those that share a key head.

    ``sight`` is how far a token sees: ``right`` and ``left`` of the key under it, and of which
    ``chunk``; None where nothing is hidden. Token i of ``seqlen_q`` sees key j of n when, with
    d = n - seqlen_q, j <= i + d + right (CAUSAL) and j >= i + d + left (unless that is None), of
    chunks of keys if given that of key i + d only. With cu_q a sequence has queries of its own
    number, packed one after the other: ``tokens`` in all. Of each sequence the first ``seqlen_q``
    are answered then, and d counts all that it has.
    With a table key j is row j % PAGE_SIZE of page table[sequence, j // PAGE_SIZE]. With ``part``
    this program's share of the keys goes to ``part`` (unnormalised) and ``stats`` (maximum, then
    sum), else to out and lse. NATURAL: powers of e, else of 2, with log2(e) in ``scale`` and
    ``softcap``. ``added`` of the keys came with this call, or with cu_new a number of each
    sequence's own, after the ``length`` others: queries are turned to the positions from there on,
    or from turned_from of the sequence. With ``qv`` a score is q k + qv v. With leftpad the first
    so many keys of a sequence are not its own, and are counted all the same. ``softcap`` and slopes
    as in common/scores.py, or None; the sink of a head is with the first part of its keys. FP8 says
    how the cache is read (e4m3.way); it holds keys and values divided by their scales. TURNED:
    keys, or columns of values, are the rows of products, queries their columns; so a matrix unit of
    64 rows at least is full without padding queries. PAIRS, if TURNED: an element of an fp8 cache
    is two columns. EARLY lets the kernel after this one start, AFTER waits for what the one before
    it wrote. FAR: offsets within a block of keys, or among columns, need 64 bits.
    """
    right, left, chunk = sight
    cu_q = given.cu_q
    q_strides, qv_strides = strides.q, strides.qv
    k_strides, v_strides = strides.k, strides.v
    if FAR:
        q_strides = wide_columns(q_strides)
        if qv is not None:
            qv_strides = wide_columns(qv_strides)
        k_strides, v_strides = wide_rows(k_strides), wide_rows(v_strides)
    if AFTER:
        gdc_wait()
    if EARLY:
        gdc_launch_dependents()
    n_rows = seqlen_q * GROUP
    n_m = tl.cdiv(n_rows, BLOCK_M)
    i_m = tl.program_id(0) % n_m
    i_s = tl.program_id(0) // n_m % splits
    i_tile = tl.program_id(0) // n_m // splits
    i_b = i_tile // kv_heads
    i_kv = i_tile % kv_heads

    o_first_q, n_all, n_q = queries_of(cu_q, i_b, seqlen_q)
    n_before = keys_in_cache(given.seqlens, length, i_b, capacity)
    if given.cu_new is not None:
        added = tl.maximum(tl.load(given.cu_new + i_b + 1) - tl.load(given.cu_new + i_b), 0)
    seqlen_k = tl.minimum(n_before + added, capacity)
    diagonal = seqlen_k - n_all

    # The first key that any row of this tile sees, in whole blocks, the one after the last, and how
    # many at the front are no sequence's. Of these keys this program has a share.
    i_early = i_m * BLOCK_M // GROUP + diagonal
    i_late = tl.minimum(i_m * BLOCK_M + BLOCK_M - 1, n_rows - 1) // GROUP + diagonal
    o_end = seqlen_k
    o_first = 0
    n_pad = 0
    if CAUSAL:
        o_end = tl.maximum(tl.minimum(o_end, i_late + right + 1), 0)
    if left is not None:
        o_first = tl.maximum(i_early + left, 0) // BLOCK_N * BLOCK_N
    if given.leftpad is not None:
        n_pad = keys_before(given.leftpad, i_b)
        o_first = tl.maximum(n_pad // BLOCK_N * BLOCK_N, o_first)
    if chunk is not None:
        first = chunk_of(tl.maximum(i_early, n_pad), n_pad, chunk)
        o_first = tl.maximum(first // BLOCK_N * BLOCK_N, o_first)
        o_end = tl.minimum(o_end, chunk_of(i_late, n_pad, chunk) + chunk)
    share = tl.cdiv(tl.cdiv(tl.maximum(o_end - o_first, 0), BLOCK_N), splits) * BLOCK_N
    o_first += i_s * share
    o_end = tl.minimum(o_end, o_first + share)
    if cu_q is not None:
        # Tiles are as many as the longest sequence needs.
        o_end = tl.where(i_m * BLOCK_M < n_q * GROUP, o_end, 0)

    o_m = tl.arange(0, BLOCK_M)
    o_n = tl.arange(0, BLOCK_N)
    o_dv = tl.arange(0, BLOCK_DV)
    in_dv = o_dv < HEAD_DIM_V
    o_row = i_m * BLOCK_M + o_m
    in_m = o_row < n_q * GROUP
    o_token = o_row // GROUP
    o_head = i_kv * GROUP + o_row % GROUP

    # [BLOCK_M, BLOCK_D]
    q += row_of(cu_q, i_b, o_first_q, q_strides)
    if ROTARY:
        # To its position, or all to the first one where none is hidden from another.
        first = n_before
        if given.turned_from is not None:
            first = tl.maximum(tl.load(given.turned_from + i_b), 0)
        o_position = first + tl.zeros_like(o_token)
        if CAUSAL or left is not None or chunk is not None:
            o_position += o_token
        o_position = tl.minimum(o_position, positions - 1).to(tl.int64)
        o_q = o_token.to(tl.int64) * q_strides.row + o_head.to(tl.int64) * q_strides.head
        b_q = load_rotated(
            q + o_q, o_position, in_m, given, q_strides.column, HEAD_DIM, BLOCK_D, ROTARY,
            INTERLEAVED,
        ).to(q.dtype.element_ty)  # fmt: skip
    else:
        b_q = load_tokens(q, q_strides, o_token, o_head, in_m, HEAD_DIM, BLOCK_D)
    if qv is not None:
        qv += row_of(cu_q, i_b, o_first_q, qv_strides)
        # [BLOCK_M, BLOCK_DV]
        b_qv = load_tokens(qv, qv_strides, o_token, o_head, in_m, HEAD_DIM_V, BLOCK_DV)
    k += i_kv.to(tl.int64) * k_strides.head
    v += i_kv.to(tl.int64) * v_strides.head
    i_cache = row_in_cache(given.batch_idx, i_b)
    if given.table is not None:
        table = given.table.at + i_cache.to(tl.int64) * given.table.row
    else:
        k += i_cache.to(tl.int64) * k_strides.batch
        v += i_cache.to(tl.int64) * v_strides.batch

    if given.k_scale is not None:
        scale *= head_scale(given.k_scale, i_b, i_kv)
    if FP8 != "" and b_q.dtype == tl.bfloat16:
        # e4m3 is widened to fp16 by one instruction for two values, to bf16 by many.
        b_q, b_size = in_fp16(b_q)
        b_scale = lead(scale * b_size, TURNED)
    else:
        b_scale = scale

    COLUMNS: tl.constexpr = 2 if PAIRS else 1
    o_kd = tl.arange(0, BLOCK_D // COLUMNS)
    o_vd = tl.arange(0, BLOCK_DV // COLUMNS)
    in_kd = o_kd < HEAD_DIM // COLUMNS
    in_vd = o_vd < HEAD_DIM_V // COLUMNS
    if PAIRS:
        b_q, b_q_odd = tl.split(tl.reshape(b_q, [BLOCK_M, BLOCK_D // 2, 2]))

    b_chunk = None if chunk is None else chunk_of(o_token + diagonal, n_pad, chunk)
    UNIT: tl.constexpr = 1.0 if NATURAL else TO_BASE_2
    if given.slopes is not None:
        slopes = given.slopes.at + i_b.to(tl.int64) * given.slopes.row
        b_slope = tl.load(slopes + o_head * given.slopes.column, mask=in_m, other=0.0) * UNIT

    b_max = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    # In fp32 the roundings of a long sum would show in the log-sum-exp.
    b_sum = tl.zeros([BLOCK_M], dtype=tl.float64 if NATURAL and not TURNED else tl.float32)
    b_sink = None if given.sinks is None else tl.load(given.sinks + o_head, mask=in_m, other=0.0)
    if given.sinks is not None:
        b_max = tl.where(i_s == 0, b_sink * UNIT, b_max)
        b_sum = tl.where(i_s == 0, 1.0, b_sum)
    if TURNED:
        # Keys lie in different warps: their weights are added up behind the loop.
        on_top = (o_n == 0)[:, None]
        if given.sinks is not None:
            # The loop multiplies what a sink of +inf has by infinity: 0 would become NaN.
            on_top = on_top | (b_max == float("inf"))[None, :]
        b_sums = tl.where(on_top, b_sum[None, :], 0.0)
        b_out = tl.zeros([BLOCK_DV // COLUMNS, BLOCK_M], dtype=sum_type(b_q.dtype))
        b_out_odd = b_out
    else:
        b_out = tl.zeros([BLOCK_M, BLOCK_DV], dtype=sum_type(b_q.dtype))
    # Numbers of pages are loaded a block ahead: no load of keys waits for another load.
    if given.table is not None:
        b_page = pages(table, given.table.column, o_first, o_end, o_n, PAGE_SIZE, BLOCK_N)
    for i_n in range(o_first, o_end, BLOCK_N):
        in_n = o_n < o_end - i_n
        if given.leftpad is not None:
            in_n = in_n & (o_n >= n_pad - i_n)
        b_block = None
        if given.table is not None:
            b_block = b_page.to(tl.int64)
            b_page = pages(table, given.table.column, i_n + BLOCK_N, o_end, o_n, PAGE_SIZE, BLOCK_N)
        k_block, o_k = block_at(k, k_strides, b_block, i_n, o_n, PAGE_SIZE, BLOCK_N)
        v_block, o_v = block_at(v, v_strides, b_block, i_n, o_n, PAGE_SIZE, BLOCK_N)
        # [BLOCK_N, BLOCK_D]
        b_k = tl.load(
            k_block + (o_k[:, None] + o_kd[None, :] * k_strides.column),
            mask=in_n[:, None] & in_kd[None, :],
            other=0.0,
        )
        if PAIRS:
            b_k, b_k_odd = both_widened(b_k, FP8)
        else:
            b_k = as_operand(b_k, b_q.dtype, FP8)
        # [BLOCK_M, BLOCK_N], or TURNED
        b_s = head_product(b_k, b_q) if TURNED else head_product(b_q, b_k)
        if qv is not None:
            # Not TURNED: the values of a tile of keys are its rows.
            b_v = tl.load(
                v_block + (o_v[:, None] + o_vd[None, :] * v_strides.column),
                mask=in_n[:, None] & in_vd[None, :],
                other=0.0,
            )
            b_s += head_product(b_qv, b_v)
        if PAIRS:
            b_s = add_product(b_s, b_k_odd, b_q_odd.T)
        if softcap is not None:
            b_s = tanh(b_s, b_scale / softcap, NATURAL) * softcap
        else:
            b_s *= b_scale
        r_token = lead(o_token, TURNED)
        o_key = i_n + trail(o_n, TURNED)
        if given.slopes is not None:
            b_away = tl.abs(r_token + diagonal - o_key)
            b_s -= lead(b_slope, TURNED) * b_away.to(tl.float32)
        seen = trail(in_n, TURNED)
        if CAUSAL:
            seen = seen & (o_key <= r_token + (diagonal + right))
        if left is not None:
            seen = seen & (o_key >= r_token + (diagonal + left))
        if chunk is not None:
            r_chunk = lead(b_chunk, TURNED)
            seen = seen & (o_key >= r_chunk) & (o_key < r_chunk + chunk)
        b_s = tl.where(seen, b_s, float("-inf"))
        b_max_new = finite(tl.maximum(b_max, tl.max(b_s, 0 if TURNED else 1)), True)
        if NATURAL:
            b_p = tl.exp(b_s - lead(b_max_new, TURNED))
            b_alpha = tl.exp(b_max - b_max_new)
        else:
            b_p = tl.exp2(b_s - lead(b_max_new, TURNED))
            b_alpha = tl.exp2(b_max - b_max_new)
        if TURNED:
            b_sums = b_sums * b_alpha[None, :] + b_p
        else:
            b_sum = b_sum * b_alpha.to(b_sum.dtype) + tl.sum(b_p, 1)
        b_out = b_out * lead(b_alpha.to(b_out.dtype), TURNED)
        b_max = b_max_new
        # [BLOCK_N, BLOCK_DV], or TURNED
        if qv is None:
            b_v = tl.load(
                v_block + (lead(o_v, TURNED) + trail(o_vd, TURNED) * v_strides.column),
                mask=lead(in_n, TURNED) & trail(in_vd, TURNED),
                other=0.0,
            )
        if PAIRS:
            b_v, b_v_odd = both_widened(b_v, FP8)
            b_out_odd = b_out_odd * b_alpha[None, :]
            b_out_odd = add_product(b_out_odd, b_v_odd, b_p.to(b_v.dtype))
        else:
            b_v = as_operand(b_v, b_q.dtype, FP8)
        if TURNED:
            b_out = add_product(b_out, b_v, b_p.to(b_v.dtype))
        else:
            b_out = add_product(b_out, b_p.to(b_v.dtype), b_v)

    b_out = b_out.to(tl.float32)
    if TURNED:
        b_sum = tl.sum(b_sums, 0)
    b_sum = b_sum.to(tl.float32)
    if PAIRS:
        b_out = tl.permute(tl.join(b_out, b_out_odd), 0, 2, 1)  # [BLOCK_DV / 2, 2, BLOCK_M]
        b_out = tl.reshape(b_out, [BLOCK_DV, BLOCK_M])
    if given.v_scale is not None:
        b_out *= head_scale(given.v_scale, i_b, i_kv)
    mask = lead(in_m, TURNED) & trail(in_dv, TURNED)
    if part is not None:
        if cu_q is not None:
            o_part = parts_of(i_kv, i_s, splits, tokens * GROUP) + o_first_q * GROUP
            n_stats = parts_of(kv_heads, 0, splits, tokens * GROUP)
        else:
            o_part = parts_of(i_tile, i_s, splits, n_rows)
            n_stats = (tl.num_programs(0) // n_m).to(tl.int64) * n_rows
        tl.store(stats + o_part + o_row, b_max, mask=in_m)
        tl.store(stats + n_stats + o_part + o_row, b_sum, mask=in_m)
        p_part = part + o_part * HEAD_DIM_V + lead(o_row.to(tl.int64) * HEAD_DIM_V, TURNED)
        tl.store(p_part + trail(o_dv, TURNED), b_out, mask=mask)
        return
    b_out, b_lse = finished(b_out, b_max, lead(b_sum, TURNED), b_sum, b_sink, NATURAL)
    if cu_q is not None:
        lse += o_first_q
        o_lse = o_head.to(tl.int64) * tokens + o_token
    else:
        o_lse = (i_b * kv_heads * GROUP + o_head).to(tl.int64) * seqlen_q + o_token
    tl.store(lse + o_lse, b_lse, mask=in_m)
    out += row_of(cu_q, i_b, o_first_q, strides.out)
    o_out = o_token.to(tl.int64) * strides.out.row + o_head.to(tl.int64) * strides.out.head
    p_out = out + lead(o_out, TURNED) + trail(o_dv, TURNED) * strides.out.column
    tl.store(p_out, b_out.to(out.dtype.element_ty), mask=mask)
