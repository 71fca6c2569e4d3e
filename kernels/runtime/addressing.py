"""Which tiles span more elements than 32 bits count, and what kernels do about it.

Offsets within a tile are products of 32 bits, since Triton passes strides below 2^31 so: the last
rows of a tile may lie further. A kernel with FAR widens its strides first; without, it is the
machine code it would be without any of this.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

LIMIT = 1 << 31
# No tile has a longer side: with smaller strides none spans as much.
LONGEST = 256
SMALL = LIMIT // (2 * LONGEST)


@triton.jit
def wide(stride):
    """A stride whose products with offsets have 64 bits."""
    return tl.cast(stride, tl.int64)


def near(values: torch.Tensor | None) -> torch.Tensor | None:
    """Scales and the like, of any shape, contiguous where 32 bits do not count all that lies
    between the first and the last of them: kernels find them by 32 bits in every loop."""
    if values is None:
        return None
    span = sum((n - 1) * stride for n, stride in zip(values.shape, values.stride(), strict=True))
    return values.contiguous() if span >= LIMIT else values


def far(config: Any, *strides: tuple[int | None, ...]) -> bool:
    """Whether a tile of a: (M, K), of b: (K, N) or of another (M, N), in this order, with the sides
    ``config`` tells, may span more than 32 bits count. What is not there has strides of None."""
    for row, column in strides:
        if (row or 0) >= SMALL or (column or 0) >= SMALL:
            break
    else:
        return False
    m, n, k = config.block_m, config.block_n, config.block_k
    sides = ((m, k), (k, n), *((m, n),) * (len(strides) - 2))
    spans = (
        rows * (row or 0) + columns * (column or 0)
        for (rows, columns), (row, column) in zip(sides, strides, strict=True)
    )
    return max(spans) >= LIMIT
