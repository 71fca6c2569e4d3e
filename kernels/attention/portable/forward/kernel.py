"""The forward pass every target runs: one block of query rows a program, online softmax."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.attention.common.addressing import near
from kernels.attention.common.columns import columns
from kernels.attention.common.numerics.constants import LOG2_E
from kernels.attention.common.numerics.heavy_rows import HEAVY, marked
from kernels.attention.common.options import PLAIN, Options
from kernels.attention.common.packed.sequences import Packed, bounds, describable_as, described
from kernels.attention.common.program_order import taken, together
from kernels.attention.common.scores import FAR_FROM, Scores, is_far
from kernels.attention.portable.tuning.choose import choose_forward, measured, most_seen
from kernels.attention.portable.tuning.plain import NARROW, RAGGED_FORWARD
from kernels.device.products import sum_type
from kernels.runtime import targets
from kernels.runtime.launch import noted

from .loop import attend


@triton.jit
def attention_forward(
    q,
    k,
    v,
    out,
    lse,
    rows,
    cu_q,
    cu_k,
    stride_qb,
    stride_qs,
    stride_qh,
    stride_qd,
    stride_kb,
    stride_ks,
    stride_kh,
    stride_kd,
    stride_vb,
    stride_vs,
    stride_vh,
    stride_vd,
    stride_ob,
    stride_os,
    stride_oh,
    stride_od,
    heads,
    heads_per_kv,
    seqlen_q,
    seqlen_k,
    tokens,
    causal_offset,
    left_offset,
    scale_log,
    factor,
    softcap,
    slopes,
    stride_ab,
    stride_ah,
    sinks,
    seed,
    drop_below,
    keep_scale,
    bias,
    stride_bb,
    stride_bh,
    stride_bs,
    stride_bk,
    blocks,
    stride_lb,
    stride_lh,
    stride_lr,
    span_own,
    span,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_V: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    CAUSAL: tl.constexpr,
    EVEN: tl.constexpr,
    PRESCALE: tl.constexpr,
    NATURAL: tl.constexpr,
    TMA: tl.constexpr,
    BRANCH: tl.constexpr,
    TOGETHER: tl.constexpr,
):
    """Row i sees key j when j < seqlen_k, with CAUSAL j <= i + causal_offset, and j >= i +
    left_offset unless that is None; blocks that no row sees are not read.

    k and v are pointers or, with TMA, descriptors; their strides are then not used.
    EVEN says that seqlen_k is a multiple of BLOCK_N, PRESCALE that the scale is not positive.
    Powers of 2 serve and ``scale_log`` holds log2(e); with NATURAL, for fp32, it does not, and
    powers of e serve: a rounding less in the log-sum-exp.

    From ``factor`` on follows what common/options.py hands over, None where nothing is asked of
    scores. ``rows`` gets what lse does, with marks (common/numerics/heavy_rows.py), for the
    gradients; either may be None. With ``cu_q`` and ``cu_k`` the sequences are packed
    (common/packed/sequences.py): the lengths are then those of the longest, both offsets count from
    the bottom-right corner, lse is (heads, tokens).
    """
    n_blocks = tl.cdiv(seqlen_q, BLOCK_M)
    i_m, i_bh = taken(tl.program_id(0), n_blocks, TOGETHER)
    if TOGETHER > 0:  # causal: the longest first
        i_m = n_blocks - 1 - i_m
    i_b = i_bh // heads
    i_h = i_bh % heads
    i_kv = i_h // heads_per_kv

    i_at = i_b
    o_lse = i_bh.to(tl.int64) * seqlen_q
    if cu_q is not None:
        o_q, seqlen_q = bounds(cu_q, i_b)
        o_k, seqlen_k = bounds(cu_k, i_b)
        if i_m * BLOCK_M >= seqlen_q:
            return
        q += o_q.to(tl.int64) * stride_qs
        out += o_q.to(tl.int64) * stride_os
        if TMA:
            i_at = o_k
        else:
            k += o_k.to(tl.int64) * stride_ks
            v += o_k.to(tl.int64) * stride_vs
        o_lse = i_h.to(tl.int64) * tokens + o_q
        causal_offset += seqlen_k - seqlen_q
        if left_offset is not None:
            left_offset += seqlen_k - seqlen_q
    b_slope = None if slopes is None else tl.load(slopes + i_b * stride_ab + i_h * stride_ah)
    b_seed = None if seed is None else tl.load(seed)
    b_bias = bias
    if bias is not None:
        b_bias += i_b.to(tl.int64) * stride_bb + i_h.to(tl.int64) * stride_bh
    b_blocks = blocks
    if blocks is not None:
        b_blocks += i_b.to(tl.int64) * stride_lb + i_h.to(tl.int64) * stride_lh
        b_blocks += (i_m * BLOCK_M) // span_own * stride_lr
    scores = Scores(
        factor, softcap, b_slope, seqlen_k - seqlen_q,
        b_bias, stride_bs, stride_bk, seqlen_q, seqlen_k, None,
        b_seed, drop_below, keep_scale, i_bh, b_blocks, span,
    )  # fmt: skip

    # The 64-bit part of every address is one scalar; offsets within a tile fit 32 bits.
    i_row = (i_m * BLOCK_M).to(tl.int64)
    out += i_b.to(tl.int64) * stride_ob + i_h.to(tl.int64) * stride_oh + i_row * stride_os
    if lse is not None:
        lse += o_lse + i_row
    if rows is not None:
        rows += o_lse + i_row

    o_m = tl.arange(0, BLOCK_M)
    o_d = tl.arange(0, BLOCK_D)
    in_m = o_m < seqlen_q - i_m * BLOCK_M
    o_dv = tl.arange(0, BLOCK_DV)
    in_d = o_d < HEAD_DIM
    in_dv = o_dv < HEAD_DIM_V

    if not TMA:
        k += i_b.to(tl.int64) * stride_kb + i_kv.to(tl.int64) * stride_kh
        v += i_b.to(tl.int64) * stride_vb + i_kv.to(tl.int64) * stride_vh
    # [BLOCK_M, BLOCK_D]; through pointers even with TMA: wgmma then reads it from shared memory,
    # where a tile out of a rank-4 descriptor would occupy registers for the whole loop.
    q += i_b.to(tl.int64) * stride_qb + i_h.to(tl.int64) * stride_qh + i_row * stride_qs
    b_q = tl.load(
        q + (o_m[:, None] * stride_qs + o_d[None, :] * stride_qd),
        mask=in_m[:, None] & in_d[None, :],
        other=0.0,
    )

    b_max = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    FAR: tl.constexpr = is_far(None if bias is None else bias.dtype)
    # In fp32 a rounding a tile is as much as the log-sum-exp may lose.
    b_sum = tl.zeros([BLOCK_M], dtype=tl.float64 if NATURAL else tl.float32)
    if sinks is not None:
        # One more score, without a value.
        b_sink = tl.load(sinks + i_h) * (1.0 if NATURAL or FAR else 1.4426950408889634)
        b_max = tl.zeros([BLOCK_M], dtype=tl.float32) + b_sink
        b_sum += tl.where(b_sink == float("-inf"), 0.0, 1.0)
    b_out = tl.zeros([BLOCK_M, BLOCK_DV], dtype=sum_type(b_q.dtype))

    # Keys any row of this block sees, and of those the whole blocks every row sees.
    o_row = i_m * BLOCK_M
    o_end = seqlen_k
    o_full = seqlen_k // BLOCK_N * BLOCK_N
    if CAUSAL:
        o_end = tl.maximum(tl.minimum(seqlen_k, o_row + BLOCK_M + causal_offset), 0)
        o_full = tl.minimum(seqlen_k, o_row + causal_offset + 1) // BLOCK_N * BLOCK_N
        o_full = tl.maximum(o_full, 0)
    if blocks is not None:
        # Only what is listed; without branches none of it counts as seen by every row.
        o_end = tl.load(b_blocks) * span
        o_full = o_full if BRANCH else 0
    o_first = 0
    o_inner = 0
    k_first = k
    v_first = v
    k_inner = k
    v_inner = v
    if left_offset is not None and (blocks is None or BRANCH):
        # Before the whole blocks, those whose first keys some rows no longer see.
        o_inner = tl.cdiv(tl.maximum(o_row + BLOCK_M - 1 + left_offset, 0), BLOCK_N) * BLOCK_N
        if blocks is None:
            o_first = tl.maximum(o_row + left_offset, 0) // BLOCK_N * BLOCK_N
            if not TMA:
                k_first += o_first.to(tl.int64) * stride_ks
                v_first += o_first.to(tl.int64) * stride_vs
                k_inner += o_inner.to(tl.int64) * stride_ks
                v_inner += o_inner.to(tl.int64) * stride_vs
    if BRANCH:
        b_out, b_max, b_sum = attend(
            b_q, b_out, b_max, b_sum, k_first, v_first, i_at, i_kv,
            o_first, o_inner, o_full, o_end, o_row,
            stride_ks, stride_kd, stride_vs, stride_vd,
            seqlen_k, causal_offset, left_offset, scale_log, scores,
            HEAD_DIM, HEAD_DIM_V, BLOCK_M, BLOCK_N, BLOCK_D, BLOCK_DV,
            CAUSAL, True, PRESCALE, NATURAL, TMA,
        )  # fmt: skip
    if left_offset is not None and blocks is None and not BRANCH:
        o_full = tl.maximum(o_full, o_inner)
        b_out, b_max, b_sum = attend(
            b_q, b_out, b_max, b_sum, k_first, v_first, i_at, i_kv,
            o_first, None, None, tl.minimum(o_inner, o_end), o_row,
            stride_ks, stride_kd, stride_vs, stride_vd,
            seqlen_k, causal_offset, left_offset, scale_log, scores,
            HEAD_DIM, HEAD_DIM_V, BLOCK_M, BLOCK_N, BLOCK_D, BLOCK_DV,
            CAUSAL, True, PRESCALE, NATURAL, TMA,
        )  # fmt: skip
    if blocks is None and not BRANCH:
        b_out, b_max, b_sum = attend(
            b_q, b_out, b_max, b_sum, k_inner, v_inner, i_at, i_kv,
            o_inner, None, None, o_full, o_row,
            stride_ks, stride_kd, stride_vs, stride_vd,
            seqlen_k, causal_offset, left_offset, scale_log, scores,
            HEAD_DIM, HEAD_DIM_V, BLOCK_M, BLOCK_N, BLOCK_D, BLOCK_DV,
            CAUSAL, False, PRESCALE, NATURAL, TMA,
        )  # fmt: skip
    if (CAUSAL or not EVEN or blocks is not None) and not BRANCH:
        if not TMA and blocks is None:
            k += o_full.to(tl.int64) * stride_ks
            v += o_full.to(tl.int64) * stride_vs
        b_out, b_max, b_sum = attend(
            b_q, b_out, b_max, b_sum, k, v, i_at, i_kv,
            o_full, None, None, o_end, o_row,
            stride_ks, stride_kd, stride_vs, stride_vd,
            seqlen_k, causal_offset, left_offset, scale_log, scores,
            HEAD_DIM, HEAD_DIM_V, BLOCK_M, BLOCK_N, BLOCK_D, BLOCK_DV,
            CAUSAL, True, PRESCALE, NATURAL, TMA,
        )  # fmt: skip

    # A fully masked row has sum 0: its output is 0 and its log-sum-exp -inf.
    b_divisor = tl.where(b_sum == 0.0, 1.0, b_sum)
    if seed is not None:
        # Weights of a row with a score of +inf are NaN, also where dropout left finite numbers.
        b_divisor = tl.where(b_sum == float("inf"), float("nan"), b_divisor)
    if NATURAL and b_out.dtype == tl.float32:
        # "/" of fp32 errs by up to 2 units in the last place.
        b_divisor = b_divisor.to(tl.float32)
        b_out = tl.div_rn(b_out, b_divisor[:, None].broadcast_to(b_out.shape))
    else:
        b_out = b_out * (1.0 / b_divisor)[:, None]
    if NATURAL:  # a logarithm rounded to fp32 would err as much as the result's own rounding
        b_lse = (b_max.to(tl.float64) + tl.log(b_sum)).to(tl.float32)
    elif FAR:
        b_lse = b_max + tl.log2(b_sum) * 0.6931471805599453
    else:
        b_lse = (b_max + tl.log2(b_sum)) * 0.6931471805599453
    b_lse = tl.where(b_sum == 0.0, float("-inf"), b_lse)
    if sinks is not None and not NATURAL:
        # Where no score adds to it the sink itself, which log2(e) and back may round.
        b_lse = tl.where((b_max == b_sink) & (b_sum == 1.0), tl.load(sinks + i_h), b_lse)
    if lse is not None:
        tl.store(lse + o_m, b_lse, mask=in_m)
    if rows is not None:
        b_heavy = b_sum < 1.0 / HEAVY
        if sinks is not None:
            # A heavy sink leaves the others nothing: it has no value, so its dp is exactly 0.
            b_others = b_sum - tl.exp2((b_sink - b_max) * (1.4426950408889634 if FAR else 1.0))
            b_heavy = b_heavy & (b_others > b_sum * HEAVY)
        if FAR:  # where backward/far_rows.py serves; the log-sum-exp tells no weights there
            b_heavy = b_heavy & (tl.abs(b_lse) <= FAR_FROM)
        tl.store(rows + o_m, marked(b_lse, b_heavy), mask=in_m)
    tl.store(
        out + o_m[:, None] * stride_os + o_dv[None, :] * stride_od,
        b_out.to(out.dtype.element_ty),
        mask=in_m[:, None] & in_dv[None, :],
    )


# An argument of 1 is a constant to Triton, and where constants tell that no row sees a whole block
# of keys the ptxas of triton 3.6 dies (signal 11): here they stay arguments.
attention_forward_few_keys = triton.jit(
    attention_forward.fn, do_not_specialize=["seqlen_k", "causal_offset"]
)


def launch(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor | None,
    *,
    causal: bool,
    causal_offset: int,
    left_offset: int | None = None,
    scale: float,
    packed: Packed | None = None,
    options: Options = PLAIN,
    rows: torch.Tensor | None = None,
) -> None:
    """Fill ``out``, ``lse`` and ``rows``, of 16-bit operands lse with marks
    (common/numerics/heavy_rows.py), for checked arguments of layout (batch, seqlen, heads,
    head_dim)."""
    q, k, v = near(q), near(k), near(v)
    batch, seqlen_q, heads, head_dim = q.shape
    seqlen_k = k.shape[1]
    if packed is not None:
        seqlen_q, seqlen_k = packed.max_q, packed.max_k
    scores = (batch, heads, seqlen_q, seqlen_k)
    natural = q.dtype == torch.float32
    seen = most_seen(seqlen_k, causal_offset if causal else None, left_offset)
    with targets.on_device_of(q):
        target = targets.current()
        block_d, block_dv = columns(target, q.dtype, head_dim, v.shape[3])
        other = not measured(target, head_dim, v.shape[3])
        masked = causal or left_offset is not None or not options.plain
        # Those behind whole blocks then have a loop of their own, or a branch in that of all.
        ragged = packed is None and not masked and seqlen_k % 16 != 0
        describable = describable_as(packed, k, v)
        config = choose_forward(
            target,
            max(head_dim, v.shape[3]),
            q.dtype,
            plain=left_offset is None and packed is None,
            other=other,
            narrow=packed is not None or seen <= NARROW,
            scored=not options.plain,
            crowded=options.crowded,
            biased_blocks=options.biased_blocks,
            uneven=options.uneven(scores),
            alone=options.alone,
            describable=describable,
            ragged=ragged,
        )
        grid = (triton.cdiv(seqlen_q, config.block_m) * batch * heads,)
        tma = config.tma and describable and not (other and packed is not None)
        # Where a row's place tells how many keys it sees: not in a window.
        ordered = causal and left_offset is None and options.block_mask is None and not natural
        few = seqlen_k == 1 or (causal and seqlen_q == causal_offset == 1)
        kernel = attention_forward_few_keys if few else attention_forward
        noted(kernel, grid)(
            q,
            described(packed, k, config.block_n, block_d) if tma else k,
            described(packed, v, config.block_n, block_dv) if tma else v,
            out,
            lse,
            rows,
            packed.queries if packed else None,
            packed.keys if packed else None,
            *q.stride(),
            *k.stride(),
            *v.stride(),
            *out.stride(),
            heads,
            heads // k.shape[2],
            seqlen_q,
            seqlen_k,
            q.shape[1] if packed else None,
            causal_offset,
            left_offset,
            (1.0 if options.modifies else scale) * (1.0 if natural else LOG2_E),
            *options.arguments(scale, scores),
            *options.listed(causal_offset if causal else None, left_offset),
            HEAD_DIM=head_dim,
            HEAD_DIM_V=v.shape[3],
            BLOCK_M=config.block_m,
            BLOCK_N=config.block_n,
            BLOCK_D=block_d,
            BLOCK_DV=block_dv,
            CAUSAL=causal,
            EVEN=packed is None and seqlen_k % config.block_n == 0,
            PRESCALE=not (scale > 0.0 or options.modifies),
            NATURAL=natural,
            TMA=tma,
            BRANCH=config.branch and (masked or (ragged and target.name in RAGGED_FORWARD)),
            TOGETHER=together(batch * heads) if ordered else 0,
            **config.options(),
        )
