"""Adds what the parts of a split attention gave.

A part keeps its running maximum, sum and unnormalised output in fp32. Here they are brought to one
maximum and added, as the loop inside a part does with its blocks of keys.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

from .configs import padded

# Parts whose outputs are held at a time.
CHUNK = 16


@triton.jit
def finished(b_out, b_max, b_divisor, b_sum, b_sink, NATURAL: tl.constexpr):
    """Output and log-sum-exp; a row that has seen no key gives 0 and its sink, -inf for None."""
    b_out = b_out / tl.where(b_divisor == 0.0, 1.0, b_divisor)
    b_log = tl.log(b_sum) if NATURAL else tl.log2(b_sum)
    b_lse = (b_max + b_log) * (1.0 if NATURAL else 0.6931471805599453)
    if b_sink is not None and not NATURAL:
        # log2(e) and back may round it.
        alone = (b_max == b_sink * 1.4426950408889634) & (b_sum == 1.0)
        b_lse = tl.where(alone, b_sink, b_lse)
    return b_out, tl.where(b_sum == 0.0, float("-inf"), b_lse)


@triton.jit
def attention_kvcache_combine(
    part,
    stats,
    out,
    lse,
    sinks,
    stride_ob,
    stride_os,
    stride_oh,
    stride_od,
    kv_heads,
    seqlen_q,
    splits,
    GROUP: tl.constexpr,
    HEAD_DIM_V: tl.constexpr,
    BLOCK_S: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    NATURAL: tl.constexpr,
    AFTER: tl.constexpr,
):
    """One row of queries a program: adds what its ``splits`` parts of the keys gave."""
    if AFTER:
        gdc_wait()
    n_rows = seqlen_q * GROUP
    i_row = tl.program_id(0) % n_rows
    i_tile = tl.program_id(0) // n_rows
    i_b = i_tile // kv_heads
    i_head = i_tile % kv_heads * GROUP + i_row % GROUP
    i_token = i_row // GROUP

    o_first = i_tile.to(tl.int64) * splits * n_rows + i_row
    n_stats = tl.num_programs(0).to(tl.int64) * splits
    o_s = tl.arange(0, BLOCK_S)
    p_max = stats + o_first + o_s.to(tl.int64) * n_rows
    b_max = tl.load(p_max, mask=o_s < splits, other=float("-inf"))
    b_sum = tl.load(p_max + n_stats, mask=o_s < splits, other=0.0)
    row_max = tl.max(b_max, 0)
    shift = tl.where(row_max == float("-inf"), 0.0, row_max)
    b_weight = tl.exp(b_max - shift) if NATURAL else tl.exp2(b_max - shift)
    row_sum = tl.sum(b_sum * b_weight, 0)

    o_dv = tl.arange(0, BLOCK_DV)
    in_dv = o_dv < HEAD_DIM_V
    o_c = tl.arange(0, CHUNK)
    b_out = tl.zeros([BLOCK_DV], dtype=tl.float32)
    for i_s in range(0, splits, CHUNK):
        o_part = o_first + (i_s + o_c).to(tl.int64) * n_rows
        in_s = i_s + o_c < splits
        b_top = tl.load(stats + o_part, mask=in_s, other=float("-inf"))
        b_share = tl.exp(b_top - shift) if NATURAL else tl.exp2(b_top - shift)
        # [CHUNK, BLOCK_DV]
        b_part = tl.load(
            part + o_part[:, None] * HEAD_DIM_V + o_dv[None, :],
            mask=in_s[:, None] & in_dv[None, :],
            other=0.0,
        )
        b_out += tl.sum(b_part * b_share[:, None], 0)

    b_sink = None if sinks is None else tl.load(sinks + i_head)
    b_out, row_lse = finished(b_out, row_max, row_sum, row_sum, b_sink, NATURAL)
    o_lse = (i_b * kv_heads * GROUP + i_head).to(tl.int64) * seqlen_q + i_token
    tl.store(lse + o_lse, row_lse)
    out += i_b.to(tl.int64) * stride_ob + i_token.to(tl.int64) * stride_os
    out += i_head.to(tl.int64) * stride_oh
    tl.store(out + o_dv * stride_od, b_out.to(out.dtype.element_ty), mask=in_dv)


def launch(
    part: torch.Tensor,
    stats: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    sinks: torch.Tensor | None,
    *,
    group: int,
    natural: bool,
    after: bool,
) -> None:
    """Fill ``out`` and ``lse`` from ``part`` (tiles, splits, rows, head_dim_v) and ``stats`` (2,
    tiles, splits, rows), a tile being the ``group`` heads of one key head of one sequence."""
    tiles, splits, rows, head_dim_v = part.shape
    chunk = min(CHUNK, 1 << (splits - 1).bit_length())
    block_dv = padded(head_dim_v)
    attention_kvcache_combine[(tiles * rows,)](
        part,
        stats,
        out,
        lse,
        sinks,
        *out.stride(),
        out.shape[2] // group,
        out.shape[1],
        splits,
        GROUP=group,
        HEAD_DIM_V=head_dim_v,
        BLOCK_S=max(16, 1 << (splits - 1).bit_length()),
        CHUNK=chunk,
        BLOCK_DV=block_dv,
        NATURAL=natural,
        AFTER=after,
        num_warps=1 if chunk * block_dv <= 512 else 4,
        **({"launch_pdl": True} if after else {}),
    )
