"""Edits that exhibits of several kinds are made of, and the targets they are for."""

from __future__ import annotations

import re

from .case import Edit

TRITON = "https://github.com/triton-lang/triton"
NVIDIA = ("sm_80", "sm_90")
BOTH = ("sm_90", "gfx942")
LOOP = "for k in range(0, K, BLOCK_K):"
_TILE = '"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP": 8, "num_warps": 4, "num_stages": 3'


def tile(**values: int) -> Edit:
    """The tile of the product, with other values."""
    text = _TILE
    for name, value in values.items():
        text = re.sub(rf'"{name}": \d+', f'"{name}": {value}', text)
    return Edit(_TILE, text)
