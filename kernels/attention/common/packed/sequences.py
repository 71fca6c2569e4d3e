"""Sequences of unlike lengths packed one after the other, and where each begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
import triton
import triton.language as tl

from kernels.runtime.descriptors import (
    TensorDescriptor,
    create_ragged_descriptor,
    describable,
    load_ragged,
)

# What ``bounds`` takes: where sequences begin, or a pair of this and of how many rows of each are
# used. A pair is an argument of its own type, so that kernels of all rows stay what they are.
Begins: TypeAlias = torch.Tensor | tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Packed:
    """Queries and keys of sequence i are rows ``cu[i]`` up to ``cu[i + 1]`` of the packed tensors,
    or the first ``used[i]`` of them, unless None; the longest ones size the grid, so that no length
    is read back from the device."""

    cu_q: torch.Tensor
    cu_k: torch.Tensor
    max_q: int
    max_k: int
    used_q: torch.Tensor | None = None
    used_k: torch.Tensor | None = None

    @classmethod
    def of(cls, q: torch.Tensor, k: torch.Tensor, *sequences: Any) -> Packed:
        """Of packed ``q`` and ``k``, with all fields. Who knows no length may name any: none is
        above their rows, and grids, tiles and workspaces are sized by the longest."""
        cu_q, cu_k, max_q, max_k, *used = sequences
        most_q, most_k = (min(n, max(len(one), 1)) for n, one in ((max_q, q), (max_k, k)))
        return cls(cu_q, cu_k, most_q, most_k, *used)

    @property
    def queries(self) -> Begins:
        return self.cu_q if self.used_q is None else (self.cu_q, self.used_q)

    @property
    def keys(self) -> Begins:
        return self.cu_k if self.used_k is None else (self.cu_k, self.used_k)

    def swapped(self) -> Packed:
        """Queries and keys in each other's place."""
        return Packed(self.cu_k, self.cu_q, self.max_k, self.max_q, self.used_k, self.used_q)

    def spread(self, tensor: torch.Tensor) -> torch.Tensor:
        """(tokens, heads, dim) as (batch, tokens, heads, dim) of batch stride 0."""
        return tensor.unsqueeze(0).expand(self.cu_q.numel() - 1, -1, -1, -1)


def describable_as(packed: Packed | None, *tensors: torch.Tensor) -> bool:
    """Whether descriptors can hold these (batch, rows, heads, dim), of sequences if ``packed``."""
    if packed is None:
        return all(describable(one) for one in tensors)
    return all(len(one) and describable(one[0]) and one.shape[1] <= 1 << 30 for one in tensors)


def described(
    packed: Packed | None, tensor: torch.Tensor, rows: int, columns: int
) -> TensorDescriptor:
    """What ``load_tile`` takes tiles of ``rows`` by ``columns`` from.

    Of packed sequences a tensor of two axes more, whose strides cancel each other: where a tile
    ends beyond its sequence it ends beyond the tensor, and the hardware fills in zeros.
    """
    if packed is None:
        return TensorDescriptor.from_tensor(tensor, [1, rows, 1, columns])
    return create_ragged_descriptor(tensor[0], [rows, 1, columns])


@triton.jit
def bounds(cu, i_b):
    """The first row of sequence ``i_b`` and how many it has; ``cu`` is of ``Begins``."""
    o_first = tl.load(begins(cu) + i_b)
    return o_first, length(cu, i_b, o_first)


@triton.jit
def begins(cu):
    """Where each sequence begins, and the last one ends."""
    return cu if isinstance(cu, tl.tensor) else cu[0]


@triton.jit
def length(cu, i_b, o_first, VOLATILE: tl.constexpr = False):
    """How many rows the sequence has that begins with ``o_first``."""
    rows = tl.load(begins(cu) + i_b + 1, volatile=VOLATILE) - o_first
    if not isinstance(cu, tl.tensor):
        rows = tl.minimum(rows, tl.maximum(tl.load(cu[1] + i_b, volatile=VOLATILE), 0))
    return rows


@triton.jit
def behind(cu, i_b, o_first, rows):
    """The row behind a sequence of ``rows``, and behind those of it that are not used."""
    return o_first + rows if isinstance(cu, tl.tensor) else tl.load(cu[0] + i_b + 1)


@triton.jit
def load_tile(tensor, i_b, i_row, i_h, rows, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr):
    """[BLOCK, BLOCK_D] through a descriptor: rows from ``i_row`` on of one head of entry ``i_b`` of
    the batch, zeros beyond the tensor. Of a packed tensor ``i_b`` is the first row of the sequence,
    which has ``rows``, and there are zeros beyond these."""
    if len(tensor.shape) == 5:
        return load_ragged(tensor, i_b, rows, [i_row, i_h, 0]).reshape(BLOCK, BLOCK_D)
    else:
        return tensor.load([i_b, i_row, i_h, 0]).reshape(BLOCK, BLOCK_D)
