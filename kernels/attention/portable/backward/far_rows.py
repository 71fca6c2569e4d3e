"""Rows of scores far from 0 in the backward pass, of 16-bit operands beside a bias.

A log-sum-exp far from 0, as a finite mask over all keys of a row leaves one, has no places left for
what weights of a row are: -1e9 counts in steps of 64, and what one step is in an exponent no 16
bits hold. The formula subtracts the maximum first. So these rows have weights of 0 in the kernels
that serve all others, and those of few keys, whose shift is the maximum, add what they give:
nothing is launched twice but programs that find no such row and end.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.attention.common.scores import FAR_FROM, LARGEST
from kernels.runtime.launch import noted

BLOCK = tl.constexpr(1024)


@triton.jit
def attention_far_rows(lse, others, ends, rows):
    """Of one head: which of its rows are far, and the log-sum-exps of the others."""
    i_bh = tl.program_id(0)
    o_bh = i_bh.to(tl.int64) * rows
    first = rows
    behind = 0
    for i in range(0, rows, BLOCK):
        o_m = i + tl.arange(0, BLOCK)
        b_lse = tl.load(lse + o_bh + o_m, mask=o_m < rows, other=0.0)
        # Infinite ones and NaN stay with the others, whose weights they make NaN.
        b_far = (tl.abs(b_lse) > FAR_FROM) & (tl.abs(b_lse) < float("inf"))
        first = tl.minimum(first, tl.min(tl.where(b_far, o_m, rows), 0))
        behind = tl.maximum(behind, tl.max(tl.where(b_far, o_m + 1, 0), 0))
        b_lse = tl.where(b_far | (b_lse == float("-inf")), LARGEST, b_lse)
        tl.store(others + o_bh + o_m, b_lse, mask=o_m < rows)
    tl.store(ends + 2 * i_bh, first)
    tl.store(ends + 2 * i_bh + 1, behind)


def find(lse: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of log-sum-exps (batch, heads, seqlen_q): those of the other rows, the largest number of fp32
    for far ones and for rows without a key; and int32 (batch * heads, 2), the first of a head's far
    rows and the row behind the last, 0 where there is none."""
    batch, heads, rows = lse.shape
    others = torch.empty_like(lse)
    ends = torch.empty((batch * heads, 2), dtype=torch.int32, device=lse.device)
    noted(attention_far_rows, (batch * heads,))(lse, others, ends, rows)
    return others, ends
