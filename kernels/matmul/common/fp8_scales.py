"""The scales of fp8 products: one a tensor, or one a block."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton.language as tl

BLOCK = tl.constexpr(128)  # values of K, and columns of b, that share a block scale


@dataclass(frozen=True)
class Scale:
    """Scales of one operand with a stride for each of its axes, all within 2^31 elements;
    ``blocks`` of 128 along K (and of b also along N) instead of one for all of K."""

    values: torch.Tensor | None = None
    strides: tuple[int, int] | tuple[None, None] = (None, None)
    blocks: bool = False

    @property
    def kind(self) -> str:
        return "none" if self.values is None else "blocks" if self.blocks else "outer"
