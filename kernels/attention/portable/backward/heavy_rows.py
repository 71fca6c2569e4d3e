"""Gradients of 16 bits without the rounding of the output, in rows that have one heavy weight.

All kernels of gradients take delta as rowsum(out * dout) - dlse, where out is rounded to 16 bits.
In a row one of whose weights is near 1 that rounding is most of what dp - delta holds. The forward
pass marks such rows (common/numerics/heavy_rows.py). A launch before the gradients' own finds their
delta from products that nothing rounded, and ends at once where a block has none; -delta takes the
place of dlse, and the kernels leave their own sum out: not even another order of it may be left in
theirs.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.attention.common.addressing import Layout, near
from kernels.attention.common.masks import keys_walked, since, up_to
from kernels.attention.common.numerics.constants import TO_BASE_2
from kernels.attention.common.numerics.heavy_rows import is_marked
from kernels.attention.common.numerics.products import head_product
from kernels.attention.common.packed.sequences import bounds, describable_as
from kernels.attention.common.problem import Given, Problem
from kernels.attention.common.program_order import block_of
from kernels.attention.common.scores import (
    Scores,
    left_of,
    modified,
    of_head,
    place,
)
from kernels.attention.portable.tile import Place, tile_of
from kernels.attention.portable.tuning.choose import choose_rows
from kernels.runtime import targets
from kernels.runtime.launch import noted

from .tiles import load_both, load_rows, weighted_differences, weights

# Blocks of rows a program looks at together: to find that there is no mark takes a launch's time.
SOME = tl.constexpr(16)
# Warps that a multiprocessor has registers for. More programs would begin when others have ended.
WARPS = 8


@triton.jit
def add_keys(
    b_q,
    b_dout,
    b_exponent,
    b_start,
    b_total,
    b_more,
    k,
    v,
    at,
    o_first,
    o_end,
    strides,
    scale,
    scores,
    TILE: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Add to a row's weights, and to those times dp less ``b_start``, what keys from ``o_first`` up
    to ``o_end`` give. By the log-sum-exp, whose rounding is in all weights of a row alike."""
    BLOCK_M: tl.constexpr = TILE.BLOCK_M
    BLOCK_N: tl.constexpr = TILE.BLOCK_N
    i_b, i_kv, o_row, causal_offset, left_offset = at
    seqlen_k = scores.columns
    o_m = tl.arange(0, BLOCK_M)
    o_n = tl.arange(0, BLOCK_N)
    if TILE.CAUSAL:
        b_last = tl.minimum(o_row + o_m + causal_offset, seqlen_k - 1)
    if left_offset is not None:
        b_first = o_row + o_m + left_offset
    for i in range(o_first, o_end, BLOCK_N):
        i_n = place(scores, i)
        # [BLOCK_N, BLOCK_D]
        b_k, b_v = load_both(k, v, i_b, i_n, i_kv, seqlen_k, strides.k, strides.v, TILE, BLOCK_N)
        # [BLOCK_M, BLOCK_N]
        b_s = head_product(b_q, b_k, WIDE=True)
        b_s, _ = modified(b_s, scores, o_row, o_m[:, None], i_n, o_n[None, :], False)
        b_dp = head_product(b_dout, b_v, WIDE=True)
        b_dp = left_of(b_dp, scores, o_row, i_n, True)
        seen = None
        if MASKED:
            seen = up_to(b_last - i_n, BLOCK_N) if TILE.CAUSAL else i_n + o_n[None, :] < seqlen_k
            if left_offset is not None:
                seen = seen & since(b_first - i_n, BLOCK_N)
        b_p = weights(b_s, b_exponent[:, None], seen, scale, MASKED)
        b_total += tl.sum(b_p, 1)
        # A row that sees one key has it where keys are hidden.
        EXACT: tl.constexpr = MASKED and scores.asked.seed is not None
        b_more += weighted_differences(b_p, b_dp, b_start, EXACT)
    return b_total, b_more


@triton.jit
def attention_backward_marked(
    q,
    k,
    v,
    out,
    dout,
    dlse,
    lse,
    corrected,
    sequences,
    strides,
    n_blocks,
    n_all,
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
    """What takes dlse's place: the negative of delta (``attention_backward_rows``) in rows that
    ``lse`` marks, in others dlse, or 0. A head has ``n_blocks`` of rows, all have ``n_all``."""
    cu_q, cu_k = sequences
    n_programs = tl.num_programs(0)
    o_m = tl.arange(0, BLOCK_M)
    o_some = tl.arange(0, SOME)
    for first in range(0, n_all, n_programs * SOME):
        b_block = block_of(first, o_some, n_programs)
        b_bh = b_block // n_blocks
        b_own = b_block % n_blocks * BLOCK_M
        b_rows = tl.zeros([SOME], dtype=tl.int32) + seqlen_q
        b_at = b_bh.to(tl.int64) * seqlen_q + b_own
        if cu_q is not None:
            b_begin, b_rows = bounds(cu_q, tl.minimum(b_bh, n_all // n_blocks - 1) // heads)
            b_at = (b_bh % heads).to(tl.int64) * tokens + b_begin + b_own
        # [SOME, BLOCK_M]
        b_row = b_at[:, None] + o_m[None, :]
        inside = (b_block < n_all)[:, None] & (b_own[:, None] + o_m[None, :] < b_rows[:, None])
        b_mark = is_marked(tl.load(lse + b_row, mask=inside, other=0.0))
        b_less = tl.zeros([SOME, BLOCK_M], dtype=tl.float32)
        if dlse is not None:
            b_less = tl.load(dlse + b_row, mask=inside, other=0.0)
        tl.store(corrected + b_row, b_less, mask=inside & (b_mark == 0))
        found = tl.sum(tl.max(b_mark.to(tl.int32), 1) << o_some, 0)
        for i in range(SOME):
            if (found >> i) & 1:
                i_block = block_of(first, i, n_programs)
                i_row = i_block % n_blocks * BLOCK_M
                i_bh = i_block // n_blocks
                i_b = i_bh // heads
                i_h = i_bh % heads
                o_row = i_bh.to(tl.int64) * seqlen_q + i_row
                own_q, own_k, at_q, at_k, at_v, at_g, at_o = seqlen_q, seqlen_k, q, k, v, dout, out
                own_offset, own_left = causal_offset, left_offset
                if cu_q is not None:
                    o_q, own_q = bounds(cu_q, i_b)
                    o_k, own_k = bounds(cu_k, i_b)
                    at_q = q + o_q.to(tl.int64) * strides.q.row
                    at_k = k + o_k.to(tl.int64) * strides.k.row
                    at_v = v + o_k.to(tl.int64) * strides.v.row
                    at_g = dout + o_q.to(tl.int64) * strides.dout.row
                    at_o = out + o_q.to(tl.int64) * strides.out.row
                    o_row = i_h.to(tl.int64) * tokens + o_q + i_row
                    own_offset = causal_offset + own_k - own_q
                    if left_offset is not None:
                        own_left = left_offset + own_k - own_q
                own = of_head(asked, blocks, i_b, i_h, i_row)
                scores = Scores(asked, blocks, own, own_k - own_q, own_q, own_k, None, i_bh)
                # [BLOCK_M, BLOCK_D]
                b_q = load_rows(at_q, i_b, i_row, i_h, own_q, strides.q, HEAD_DIM, BLOCK_M, BLOCK_D)
                b_dout = load_rows(
                    at_g, i_b, i_row, i_h, own_q, strides.dout, HEAD_DIM_V, BLOCK_M, BLOCK_DV
                )
                b_out = load_rows(
                    at_o, i_b, i_row, i_h, own_q, strides.out, HEAD_DIM_V, BLOCK_M, BLOCK_DV
                )
                # The start, to which the weighted mean of what dp differs by is added.
                b_start = tl.sum(b_out.to(tl.float32) * b_dout.to(tl.float32), 1)
                in_m = i_row + o_m < own_q
                b_lse = tl.load(lse + o_row + o_m, mask=in_m, other=0.0)
                b_exponent = b_lse * TO_BASE_2
                b_total = tl.zeros([BLOCK_M], dtype=tl.float32)
                MORE: tl.constexpr = tl.float32 if asked.seed is None else tl.float64
                b_more = tl.zeros([BLOCK_M], dtype=MORE)
                if asked.sinks is not None:  # a score of its own, whose dp is 0
                    b_total += tl.exp2(tl.load(asked.sinks + i_h) * TO_BASE_2 - b_exponent)
                    b_more -= b_total * b_start
                unit = scale if asked.factor is None else 1.0
                o_first, _, o_full, o_end = keys_walked(
                    i_row, own_offset, own_left, scores, CAUSAL, BLOCK_M, BLOCK_N
                )
                at = Place(i_b, i_h // heads_per_kv, i_row, own_offset, own_left)
                TILE: tl.constexpr = tile_of(
                    HEAD_DIM, HEAD_DIM_V, BLOCK_M, BLOCK_N, BLOCK_D, BLOCK_DV, CAUSAL
                )
                if left_offset is not None or blocks.listed is not None:
                    o_full = o_first
                else:
                    b_total, b_more = add_keys(
                        b_q, b_dout, b_exponent, b_start, b_total, b_more, at_k, at_v, at, o_first,
                        o_full, strides, unit, scores, TILE, False,
                    )  # fmt: skip
                b_total, b_more = add_keys(
                    b_q, b_dout, b_exponent, b_start, b_total, b_more, at_k, at_v, at, o_full,
                    o_end, strides, unit, scores, TILE, True,
                )  # fmt: skip
                b_total = tl.where(b_total == 0.0, 1.0, b_total)
                b_delta = b_start + b_more / b_total
                if dlse is not None:
                    # Weights from the log-sum-exp sum up to the total: what its rounding makes
                    # of them a bias would show, whose gradient is fp32.
                    b_delta -= tl.load(dlse + o_row + o_m, mask=in_m, other=0.0) / b_total
                tl.store(corrected + o_row + o_m, -b_delta, mask=in_m & is_marked(b_lse))


def launch(problem: Problem, given: Given) -> torch.Tensor | None:
    """-delta of rows that ``lse`` marks, dlse or 0 of the others, as lse lies; unwritten in rows of
    no packed sequence. None where there is nothing to correct."""
    if not given.out.numel() or not problem.k.numel():
        return None
    problem = problem.near()
    q, k, v = problem.q, problem.k, problem.v
    out, dout = near(given.out), near(given.dout)
    corrected = torch.empty_like(given.lse)
    with targets.on_device_of(q, "q"):
        target = targets.current()
        tiles = problem.tiles(target)
        config = choose_rows(
            target,
            max(tiles["BLOCK_D"], tiles["BLOCK_DV"]),
            scored=not problem.options.plain,
            describable=describable_as(problem.packed, q, k, v, dout),
        )
        n_blocks = triton.cdiv(problem.lengths[0], config.block_m)
        count = n_blocks * problem.batch * problem.heads
        programs = min(count, WARPS // config.num_warps * targets.multiprocessors())
        noted(attention_backward_marked, (programs,))(
            q=q,
            k=k,
            v=v,
            out=out,
            dout=dout,
            dlse=given.dlse,
            lse=given.lse,
            corrected=corrected,
            strides=Layout.of(q=q, k=k, v=v, dout=dout, out=out),
            n_blocks=n_blocks,
            n_all=count,
            heads=problem.heads,
            **problem.sizes,
            **problem.sight,
            scale=problem.scale,
            blocks=problem.walked(),
            **tiles,
            **config.constants(),
        )
    return corrected
