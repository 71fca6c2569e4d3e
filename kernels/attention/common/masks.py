"""Which columns of a tile each of its rows sees.

A column's number is told as a multiple of 8 and the rest: of a row's bound less the rest there are
few, and what they are compared with are constants. As numbers of columns these would take a
register each, through the whole loop.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def keys_of_rows(
    o_row, seqlen_k, causal_offset, CAUSAL: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """The key after the last that any of ROWS rows from ``o_row`` on sees, and after the whole
    blocks of keys that every one of them sees."""
    o_end = seqlen_k
    o_full = seqlen_k // BLOCK * BLOCK
    if CAUSAL:
        o_end = tl.maximum(tl.minimum(seqlen_k, o_row + ROWS + causal_offset), 0)
        o_full = tl.minimum(seqlen_k, o_row + causal_offset + 1) // BLOCK * BLOCK
        o_full = tl.maximum(o_full, 0)
    return o_end, o_full


@triton.jit
def keys_walked(
    o_row, causal_offset, left_offset, scores, CAUSAL: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr, BRANCH: tl.constexpr = False,
):  # fmt: skip
    """Of ROWS rows from ``o_row`` on the first key that is walked, the first that no left limit
    hides from some, and ``keys_of_rows``'s two. Of lists of blocks all that is listed, where with
    BRANCH whole blocks are known."""
    LISTED: tl.constexpr = scores.blocks.listed is not None
    o_end, o_full = keys_of_rows(o_row, scores.columns, causal_offset, CAUSAL, ROWS, BLOCK)
    if LISTED:
        # Only what is listed; without branches none of it counts as seen by every row.
        o_end = tl.load(scores.own.blocks) * scores.blocks.span
        o_full = o_full if BRANCH else 0
    o_first = 0
    o_inner = 0
    if left_offset is not None and (not LISTED or BRANCH):
        # Before the whole blocks, those whose first keys some rows no longer see.
        o_inner = tl.cdiv(tl.maximum(o_row + ROWS - 1 + left_offset, 0), BLOCK) * BLOCK
        if not LISTED:
            o_first = tl.maximum(o_row + left_offset, 0) // BLOCK * BLOCK
    return o_first, o_inner, o_full, o_end


@triton.jit
def up_to(b_last, COLUMNS: tl.constexpr):
    """(rows, COLUMNS): the columns from 0 up to ``b_last`` of each row, and it."""
    o_low = tl.arange(0, 8)
    o_high = tl.arange(0, COLUMNS // 8) * 8
    b_seen = o_high[None, :, None] <= b_last[:, None, None] - o_low[None, None, :]
    return tl.reshape(b_seen, [b_last.shape[0], COLUMNS])


@triton.jit
def since(b_first, COLUMNS: tl.constexpr):
    """(rows, COLUMNS): the columns from ``b_first`` of each row on."""
    o_low = tl.arange(0, 8)
    o_high = tl.arange(0, COLUMNS // 8) * 8
    b_seen = o_high[None, :, None] >= b_first[:, None, None] - o_low[None, None, :]
    return tl.reshape(b_seen, [b_first.shape[0], COLUMNS])
