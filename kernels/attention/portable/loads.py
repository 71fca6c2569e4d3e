"""Loads of tiles that loops over keys share."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def load_keys(at, in_columns, in_rows, MASKED: tl.constexpr, WHOLE: tl.constexpr):
    """A tile of keys or values: zeros beyond the last row if MASKED, and beyond the last column
    unless the tile is WHOLE."""
    if MASKED:
        return tl.load(at, mask=in_columns & in_rows, other=0.0)
    elif WHOLE:
        return tl.load(at)
    else:
        return tl.load(at, mask=in_columns, other=0.0)
