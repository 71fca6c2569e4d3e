"""Sequences of unlike lengths packed one after the other, and where each begins."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl


@dataclass(frozen=True)
class Packed:
    """Queries and keys of sequence i are rows ``cu[i]`` up to ``cu[i + 1]`` of the packed tensors;
    the longest ones size the grid, so that no length is read back from the device."""

    cu_q: torch.Tensor
    cu_k: torch.Tensor
    max_q: int
    max_k: int

    def spread(self, tensor: torch.Tensor) -> torch.Tensor:
        """(tokens, heads, dim) as (batch, tokens, heads, dim) of batch stride 0."""
        return tensor.unsqueeze(0).expand(self.cu_q.numel() - 1, -1, -1, -1)


@triton.jit
def bounds(cu, i_b):
    """The first row of sequence ``i_b`` and how many it has."""
    o_first = tl.load(cu + i_b)
    return o_first, tl.load(cu + i_b + 1) - o_first
