"""How many columns a tile has for a head dim."""

from __future__ import annotations

import torch

from kernels.runtime.targets import Target


def padded(head_dim: int) -> int:
    """Columns of a tile that holds ``head_dim`` of them: a power of 2, 16 at least."""
    return max(16, 1 << (head_dim - 1).bit_length())


def columns(target: Target, dtype: torch.dtype, head_dim: int, head_dim_v: int) -> tuple[int, int]:
    """Columns of the tiles that hold ``head_dim`` and ``head_dim_v`` of them in one kernel.

    wgmma reads tiles of 16, of 32 and of 64 or more columns of 16 bits in three orders (swizzles of
    32, 64 and 128 bytes). Where keys and values share an address in two orders, ptxas 12.8 (triton
    3.6 and 3.7) adds the order to half a descriptor that nothing wrote, and the product reads other
    places of shared memory: results are wrong or NaN, or the kernel faults. On an H200 so were
    gradients with 256 and 32 columns, whose descriptors show nothing wrong. So the narrower tile is
    in the order of the wider one.
    """
    least = 32 if dtype.itemsize == 1 else 16  # the tensor cores take 32 values of fp8 at a time
    block_d, block_dv = max(least, padded(head_dim)), max(least, padded(head_dim_v))
    if target.has_wgmma and dtype.itemsize == 2:
        least = min(64, max(block_d, block_dv))
        return max(least, block_d), max(least, block_dv)
    return block_d, block_dv
