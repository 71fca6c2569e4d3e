"""Adds what the parts of a split attention gave.

A part keeps its running maximum, sum and unnormalised output in fp32. Here they are brought to one
maximum and added, as the loop inside a part does with its blocks of keys.
"""

from __future__ import annotations

from functools import lru_cache

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

from kernels.attention.common.addressing import Strides
from kernels.attention.common.columns import padded
from kernels.attention.common.numerics.constants import TO_BASE_2, TO_BASE_E
from kernels.attention.common.scores import finite
from kernels.runtime import targets
from kernels.runtime.launch import noted

from .cache import parts_of, queries_of, row_of

# A program is one warp, which waits for no other.
WARPS = 1
# Values of parts a program holds: all its loads are on their way at once.
MOST = 512
# A sector of the cache.
FEWEST_COLUMNS = 8


@triton.jit
def finished(b_out, b_max, b_divisor, b_sum, b_sink, NATURAL: tl.constexpr):
    """Output and log-sum-exp; a row that has seen no key gives 0 and its sink, -inf for None."""
    b_divisor = tl.where(b_divisor == 0.0, 1.0, b_divisor)
    if NATURAL and b_divisor.dtype == tl.float32:
        # "/" of fp32 errs by up to 2 units in the last place.
        b_out = tl.div_rn(b_out, b_divisor.broadcast_to(b_out.shape))
    else:
        b_out = b_out / b_divisor
    if NATURAL:  # a logarithm rounded to fp32 would err as much as the result's own rounding
        b_lse = (b_max.to(tl.float64) + tl.log(b_sum.to(tl.float64))).to(tl.float32)
    else:
        b_lse = (b_max + tl.log2(b_sum)) * TO_BASE_E
    if b_sink is not None and not NATURAL:
        # log2(e) and back may round it.
        alone = (b_max == b_sink * TO_BASE_2) & (b_sum == 1.0)
        b_lse = tl.where(alone, b_sink, b_lse)
    return b_out, tl.where(b_sum == 0.0, float("-inf"), b_lse)


@triton.jit
def attention_kvcache_combine(
    part,
    stats,
    out,
    lse,
    sinks,
    cu_q,
    out_strides,
    kv_heads,
    seqlen_q,
    tokens,
    splits,
    GROUP: tl.constexpr,
    HEAD_DIM_V: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    NATURAL: tl.constexpr,
    AFTER: tl.constexpr,
):
    """BLOCK_R rows of queries of one tile and BLOCK_DV columns a program: adds what their
    ``splits`` parts of the keys gave. ``cu_q`` and ``tokens`` as in decode/kernel.py. AFTER waits
    for what the launch before wrote."""
    if AFTER:
        gdc_wait()
    n_rows = seqlen_q * GROUP
    n_r = tl.cdiv(n_rows, BLOCK_R)
    i_tile = tl.program_id(0) // n_r
    i_b = i_tile // kv_heads
    o_row = tl.program_id(0) % n_r * BLOCK_R + tl.arange(0, BLOCK_R)
    o_head = i_tile % kv_heads * GROUP + o_row % GROUP
    o_token = o_row // GROUP
    o_dv = tl.program_id(1) * BLOCK_DV + tl.arange(0, BLOCK_DV)
    o_first_q, _, n_q = queries_of(cu_q, i_b, seqlen_q)
    in_r = o_row < n_q * GROUP
    in_dv = o_dv < HEAD_DIM_V

    # [BLOCK_S, BLOCK_R]
    o_s = tl.arange(0, BLOCK_S)
    if cu_q is not None:
        o_part = parts_of(i_tile % kv_heads, o_s[:, None], splits, tokens * GROUP)
        o_part += o_first_q * GROUP + o_row[None, :]
        n_stats = parts_of(kv_heads, 0, splits, tokens * GROUP)
    else:
        o_part = i_tile.to(tl.int64) * splits * n_rows + (o_s[:, None] * n_rows + o_row[None, :])
        n_stats = (tl.num_programs(0) // n_r).to(tl.int64) * splits * n_rows
    in_part = (o_s < splits)[:, None] & in_r[None, :]
    # [BLOCK_S, BLOCK_R, BLOCK_DV], asked for first: nothing is computed before all is on its way.
    b_part = tl.load(
        part + (o_part * HEAD_DIM_V)[:, :, None] + o_dv[None, None, :],
        mask=in_part[:, :, None] & in_dv[None, None, :],
        other=0.0,
    )
    b_max = tl.load(stats + o_part, mask=in_part, other=float("-inf"))
    b_sum = tl.load(stats + n_stats + o_part, mask=in_part, other=0.0)
    row_max = tl.max(b_max, 0)
    shift = finite(row_max, True)
    b_weight = tl.exp(b_max - shift[None, :]) if NATURAL else tl.exp2(b_max - shift[None, :])
    row_sum = tl.sum(b_sum * b_weight, 0)
    b_out = tl.sum(b_part * b_weight[:, :, None], 0)

    b_sink = None if sinks is None else tl.load(sinks + o_head, mask=in_r, other=0.0)
    b_out, row_lse = finished(b_out, row_max, row_sum[:, None], row_sum, b_sink, NATURAL)
    if cu_q is not None:
        lse += o_first_q
        o_lse = o_head.to(tl.int64) * tokens + o_token
    else:
        o_lse = (i_b * kv_heads * GROUP + o_head).to(tl.int64) * seqlen_q + o_token
    tl.store(lse + o_lse, row_lse, mask=in_r & (tl.program_id(1) == 0))
    out += row_of(cu_q, i_b, o_first_q, out_strides)
    o_out = o_token.to(tl.int64) * out_strides.row + o_head.to(tl.int64) * out_strides.head
    tl.store(
        out + o_out[:, None] + o_dv[None, :] * out_strides.column,
        b_out.to(out.dtype.element_ty),
        mask=in_r[:, None] & in_dv[None, :],
    )


@lru_cache
def cut(tiles: int, splits: int, rows: int, head_dim_v: int, programs: int) -> tuple[int, int, int]:
    """Parts, rows and columns of a program: few columns where there would be fewer than
    ``programs``, several rows where there are more than enough."""
    block_s = 1 << (splits - 1).bit_length()
    block_dv = padded(head_dim_v)
    while block_dv > FEWEST_COLUMNS and (
        block_s * block_dv > MOST or tiles * rows * -(-head_dim_v // block_dv) < programs
    ):
        block_dv //= 2
    block_r = 1
    while (
        block_r < rows
        and 2 * block_s * block_r * block_dv <= MOST
        and tiles * -(-rows // (2 * block_r)) >= 2 * programs
    ):
        block_r *= 2
    return block_s, block_r, block_dv


def launch(
    part: torch.Tensor,
    stats: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    sinks: torch.Tensor | None,
    cu_q: torch.Tensor | None,
    *,
    tiles: int,
    rows: int,
    group: int,
) -> None:
    """Fill ``out`` and ``lse`` from ``part`` (tiles, splits, rows, head_dim_v) and ``stats`` (2,
    tiles, splits, rows), a tile being the ``group`` heads of one key head of one sequence. With
    ``cu_q`` out is (1, tokens, ...), parts are (kv_heads, splits, tokens * group, head_dim_v), and
    a tile has up to ``rows``."""
    splits, head_dim_v = part.shape[1], part.shape[3]
    after = targets.current().overlaps_launches
    block_s, block_r, block_dv = cut(tiles, splits, rows, head_dim_v, targets.multiprocessors())
    noted(attention_kvcache_combine, (tiles * -(-rows // block_r), -(-head_dim_v // block_dv)))(
        part,
        stats,
        out,
        lse,
        sinks,
        cu_q,
        Strides(*out.stride()),
        out.shape[2] // group,
        rows // group,
        None if cu_q is None else out.shape[1],
        splits,
        GROUP=group,
        HEAD_DIM_V=head_dim_v,
        BLOCK_S=block_s,
        BLOCK_R=block_r,
        BLOCK_DV=block_dv,
        NATURAL=out.dtype == torch.float32,
        AFTER=after,
        num_warps=WARPS,
        **({"launch_pdl": True} if after else {}),
    )
