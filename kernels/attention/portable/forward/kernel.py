"""The forward pass every target runs: one block of query rows a program, online softmax."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.attention.common.addressing import Layout
from kernels.attention.common.masks import keys_walked
from kernels.attention.common.numerics.constants import LOG2_E
from kernels.attention.common.numerics.fp8_scales import (
    OFFSET,
    Scales,
    no_zero,
    scale_of,
    with_sign,
)
from kernels.attention.common.numerics.heavy_rows import marked
from kernels.attention.common.packed.sequences import bounds, describable_as, described
from kernels.attention.common.problem import Problem
from kernels.attention.common.program_order import taken, together
from kernels.attention.common.scores import ScoreOptions, Scores, is_far, of_head
from kernels.attention.portable.tile import Place, tile_of
from kernels.attention.portable.tuning.choose import Asked, choose_forward
from kernels.attention.portable.tuning.fp8 import choose_fp8
from kernels.attention.portable.tuning.plain import RAGGED_FORWARD
from kernels.device.products import sum_type
from kernels.runtime import targets
from kernels.runtime.launch import noted

from .fp8 import refuse_other_flavours
from .loop import attend
from .row_sums import begun, finished, is_heavy


@triton.jit
def attention_forward(
    q,
    k,
    v,
    out,
    lse,
    rows,
    sequences,
    scales,
    scale_strides,
    strides,
    heads,
    heads_per_kv,
    seqlen_q,
    seqlen_k,
    tokens,
    causal_offset,
    left_offset,
    scale_log,
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
    PRESCALE: tl.constexpr,
    TMA: tl.constexpr,
    BRANCH: tl.constexpr,
    TOGETHER: tl.constexpr,
    OFFSET: tl.constexpr,
):
    """Row i sees key j when j < seqlen_k, with CAUSAL j <= i + causal_offset, and j >= i +
    left_offset unless that is None; blocks that no row sees are not read.

    k and v are pointers or, with TMA, descriptors; their strides are then not used.
    EVEN says that seqlen_k is a multiple of BLOCK_N, PRESCALE that the scale is not positive.
    Powers of 2 serve and ``scale_log`` holds log2(e); for fp32 it does not, and powers of e serve:
    a rounding less in the log-sum-exp.

    ``rows`` gets what lse does, with marks (common/numerics/heavy_rows.py), for the gradients;
    either may be None. ``scales``, of fp8 only, are read here, never on the host: a launch does
    not wait for what computed them. OFFSET is as the loop takes it. With ``sequences`` that
    are packed the lengths are those of the longest, both offsets count from the bottom-right
    corner, lse is (heads, tokens).
    """
    cu_q, cu_k = sequences
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
        q += o_q.to(tl.int64) * strides.q.row
        out += o_q.to(tl.int64) * strides.out.row
        if TMA:
            i_at = o_k
        else:
            k += o_k.to(tl.int64) * strides.k.row
            v += o_k.to(tl.int64) * strides.v.row
        o_lse = i_h.to(tl.int64) * tokens + o_q
        causal_offset += seqlen_k - seqlen_q
        if left_offset is not None:
            left_offset += seqlen_k - seqlen_q
    SCALED: tl.constexpr = scales.q is not None or scales.k is not None
    if SCALED:
        factor = scale_log if asked.factor is None else asked.factor
        if scales.q is not None:
            factor *= scale_of(scales.q, i_b, i_h, scale_strides.q)
        if scales.k is not None:
            factor *= scale_of(scales.k, i_b, i_kv, scale_strides.k)
        if asked.factor is None:
            scale_log = factor
        else:
            # No more than a softcap goes with fp8.
            unused = asked.slope_strides
            asked = ScoreOptions(
                factor, asked.softcap, None, unused, None, None, None, None, None, unused
            )
    own = of_head(asked, blocks, i_b, i_h, i_m * BLOCK_M)
    scores = Scores(asked, blocks, own, seqlen_k - seqlen_q, seqlen_q, seqlen_k, None, i_bh)

    # The 64-bit part of every address is one scalar; offsets within a tile fit 32 bits.
    i_row = (i_m * BLOCK_M).to(tl.int64)
    out += (
        i_b.to(tl.int64) * strides.out.batch
        + i_h.to(tl.int64) * strides.out.head
        + i_row * strides.out.row
    )
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
        k += i_b.to(tl.int64) * strides.k.batch + i_kv.to(tl.int64) * strides.k.head
        v += i_b.to(tl.int64) * strides.v.batch + i_kv.to(tl.int64) * strides.v.head
    # [BLOCK_M, BLOCK_D]; through pointers even with TMA: wgmma then reads it from shared memory,
    # where a tile out of a rank-4 descriptor would occupy registers for the whole loop.
    q += (
        i_b.to(tl.int64) * strides.q.batch
        + i_h.to(tl.int64) * strides.q.head
        + i_row * strides.q.row
    )
    b_q = tl.load(
        q + (o_m[:, None] * strides.q.row + o_d[None, :] * strides.q.column),
        mask=in_m[:, None] & in_d[None, :],
        other=0.0,
    )

    if SCALED and asked.factor is None and not PRESCALE:
        b_q = with_sign(b_q, scale_log)
        scale_log = no_zero(tl.abs(scale_log))
    FAR: tl.constexpr = is_far(None if asked.bias is None else asked.bias.dtype)
    NATURAL: tl.constexpr = b_q.dtype == tl.float32
    b_max, b_sum, b_sink = begun(asked, i_h, BLOCK_M, NATURAL, FAR)
    b_out = tl.zeros([BLOCK_M, BLOCK_DV], dtype=sum_type(b_q.dtype))

    # Keys any row of this block sees, and of those the whole blocks every row sees.
    o_row = i_m * BLOCK_M
    o_first, o_inner, o_full, o_end = keys_walked(
        o_row, causal_offset, left_offset, scores, CAUSAL, BLOCK_M, BLOCK_N, BRANCH
    )
    at = Place(i_at, i_kv, o_row, causal_offset, left_offset)
    TILE: tl.constexpr = tile_of(HEAD_DIM, HEAD_DIM_V, BLOCK_M, BLOCK_N, BLOCK_D, BLOCK_DV, CAUSAL)
    if BRANCH:
        b_out, b_max, b_sum = attend(
            b_q, b_out, b_max, b_sum, k, v, at, o_first, o_inner, o_full, o_end, strides, scale_log,
            scores, TILE, True, PRESCALE, TMA, OFFSET,
        )  # fmt: skip
    else:
        if left_offset is not None and blocks.listed is None:
            o_full = tl.maximum(o_full, o_inner)
            b_out, b_max, b_sum = attend(
                b_q, b_out, b_max, b_sum, k, v, at, o_first, None, None, tl.minimum(o_inner, o_end),
                strides, scale_log, scores, TILE, True, PRESCALE, TMA, OFFSET,
            )  # fmt: skip
        if blocks.listed is None:
            b_out, b_max, b_sum = attend(
                b_q, b_out, b_max, b_sum, k, v, at, o_inner, None, None, o_full, strides, scale_log,
                scores, TILE, False, PRESCALE, TMA, OFFSET,
            )  # fmt: skip
        if CAUSAL or not EVEN or blocks.listed is not None:
            b_out, b_max, b_sum = attend(
                b_q, b_out, b_max, b_sum, k, v, at, o_full, None, None, o_end, strides, scale_log,
                scores, TILE, True, PRESCALE, TMA, OFFSET,
            )  # fmt: skip

    if OFFSET > 0:
        b_max -= OFFSET
    b_out, b_lse = finished(b_out, b_max, b_sum, b_sink, asked, i_h, NATURAL, FAR)
    if scales.v is not None:
        b_out *= scale_of(scales.v, i_b, i_kv, scale_strides.v)
    if lse is not None:
        tl.store(lse + o_m, b_lse, mask=in_m)
    if rows is not None:
        b_heavy = is_heavy(b_max, b_sum, b_sink, b_lse, asked, FAR)
        tl.store(rows + o_m, marked(b_lse, b_heavy), mask=in_m)
    tl.store(
        out + o_m[:, None] * strides.out.row + o_dv[None, :] * strides.out.column,
        b_out.to(out.dtype.element_ty),
        mask=in_m[:, None] & in_dv[None, :],
    )


# An argument of 1 is a constant to Triton, and where constants tell that no row sees a whole block
# of keys the ptxas of triton 3.6 dies (signal 11): here they stay arguments.
attention_forward_few_keys = triton.jit(
    attention_forward.fn, do_not_specialize=["seqlen_k", "causal_offset"]
)


def launch(
    problem: Problem,
    out: torch.Tensor,
    lse: torch.Tensor | None,
    rows: torch.Tensor | None = None,
    scales: Scales | None = None,
) -> None:
    """Fill ``out``, ``lse`` and ``rows``, of 16-bit operands lse with marks
    (common/numerics/heavy_rows.py), for checked arguments of layout (batch, seqlen, heads,
    head_dim); of fp8 by ``scales``."""
    problem = problem.near()
    with targets.on_device_of(problem.q):
        q, k, v, mask, packed = problem.q, problem.k, problem.v, problem.mask, problem.packed
        (seqlen_q, seqlen_k), options, target = problem.lengths, problem.options, targets.current()
        natural, heads = q.dtype == torch.float32, problem.batch * problem.heads
        tiles = problem.tiles(target)
        describable = describable_as(packed, k, v)
        asked = Asked.of(target, problem, describable, options.alone)
        config = choose_forward(target, max(problem.head_dims), q.dtype, asked)
        if scales is not None:
            refuse_other_flavours(q, target)
            config = choose_fp8(target, max(problem.head_dims))
        tma = config.tma and describable and not (asked.other and asked.packed)
        branch = problem.is_masked or (asked.ragged and target.name in RAGGED_FORWARD)
        # Where a row's place decides how many keys it sees: not in a window.
        ordered = mask.causal and mask.left is None and options.block_mask is None
        ordered = ordered and not natural and scales is None
        few = seqlen_k == 1 or (mask.causal and seqlen_q == mask.offset == 1)
        kernel = attention_forward_few_keys if few else attention_forward
        noted(kernel, (triton.cdiv(seqlen_q, config.block_m) * heads,))(
            q=q,
            k=described(packed, k, config.block_n, tiles["BLOCK_D"]) if tma else k,
            v=described(packed, v, config.block_n, tiles["BLOCK_DV"]) if tma else v,
            out=out,
            lse=lse,
            rows=rows,
            scales=scales or Scales(None, None, None),
            scale_strides=None if scales is None else scales.strides(),
            strides=Layout.of(q=q, k=k, v=v, out=out),
            heads=problem.heads,
            **problem.sizes,
            **problem.sight,
            scale_log=(1.0 if options.modifies else problem.scale) * (1.0 if natural else LOG2_E),
            blocks=problem.walked(),
            **tiles,
            EVEN=packed is None and seqlen_k % config.block_n == 0,
            PRESCALE=not (problem.scale > 0.0 or options.modifies),
            TMA=tma,
            BRANCH=config.branch and branch,
            TOGETHER=together(heads) if ordered else 0,
            OFFSET=OFFSET.get(q.dtype, 0),
            **config.constants(),
        )
