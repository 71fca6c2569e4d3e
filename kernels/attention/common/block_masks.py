"""Which blocks of a block-sparse mask a program walks: found by one small launch, in order."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from kernels.runtime.launch import noted

from .addressing import HeadStrides


class Blocks(NamedTuple):
    """What programs walk of a block-sparse mask, as one argument of a kernel: ``listed`` by blocks
    of ``span_own`` rows that programs own, each list of blocks of ``span``. None without a mask."""

    listed: Any = None
    strides: Any = HeadStrides(None, None)
    span_own: Any = None
    span: Any = None


@triton.jit
def list_blocks(
    mask,
    listed,
    stride_b,
    stride_h,
    stride_own,
    stride_walked,
    heads,
    owned,
    walked,
    span_own,
    span,
    causal_offset,
    left_offset,
    OWNS_KEYS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Of one row of ``mask`` (of one column, with OWNS_KEYS): how many blocks are seen, then which,
    into ``listed``, contiguous of (batch, heads, owned, 1 + walked). Offsets as in
    portable/forward/kernel.py, None where they hide nothing."""
    i_own = tl.program_id(0) % owned
    i_bh = tl.program_id(0) // owned
    mask += (i_bh // heads).to(tl.int64) * stride_b + (i_bh % heads).to(tl.int64) * stride_h
    mask += i_own.to(tl.int64) * stride_own
    listed += tl.program_id(0).to(tl.int64) * (1 + walked)
    count = 0
    for first in range(0, walked, BLOCK):
        o_w = first + tl.arange(0, BLOCK)
        b_seen = tl.load(mask + o_w.to(tl.int64) * stride_walked, mask=o_w < walked, other=0) != 0
        if OWNS_KEYS:
            b_row, b_key, rows, keys = o_w * span, i_own * span_own, span, span_own
        else:
            b_row, b_key, rows, keys = i_own * span_own, o_w * span, span_own, span
        if causal_offset is not None:
            b_seen = b_seen & (b_key < b_row + rows + causal_offset)
        if left_offset is not None:
            b_seen = b_seen & (b_key + keys > b_row + left_offset)
        b_count = b_seen.to(tl.int32)
        tl.store(listed + count + tl.cumsum(b_count, 0), o_w, mask=b_seen)
        count += tl.sum(b_count, 0)
    tl.store(listed, count)


def listed(
    mask: torch.Tensor,
    rows: int,
    columns: int,
    causal_offset: int | None,
    left_offset: int | None,
    *,
    owns_keys: bool,
) -> Blocks:
    """What kernels walk of a mask (batch or 1, heads or 1, blocks of ``rows`` queries, blocks of
    ``columns`` keys); an axis that broadcasts has stride 0."""
    strides = mask.stride()
    owned, walked, own, span = mask.shape[2], mask.shape[3], rows, columns
    if owns_keys:
        owned, walked, own, span = walked, owned, columns, rows
        strides = (*strides[:2], strides[3], strides[2])
    found = torch.zeros((*mask.shape[:2], owned, 1 + walked), dtype=torch.int32, device=mask.device)
    if found.numel():
        noted(list_blocks, (mask.shape[0] * mask.shape[1] * owned,))(
            mask.view(torch.uint8),
            found,
            *strides,
            mask.shape[1],
            owned,
            walked,
            own,
            span,
            causal_offset,
            left_offset,
            OWNS_KEYS=owns_keys,
            BLOCK=min(256, triton.next_power_of_2(max(walked, 64))),
            num_warps=1,
        )
    by_batch, by_head = (0 if found.shape[axis] == 1 else found.stride(axis) for axis in (0, 1))
    return Blocks(found, HeadStrides(by_batch, by_head, found.stride(2)), own, span)
