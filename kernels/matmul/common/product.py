"""A product as one object: its operands, what is done to it, and where it goes."""

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


UNSCALED = Scale()


@dataclass(frozen=True, eq=False)
class Product:
    """``out = activation((a * a_scale) @ (b * b_scale) + bias) + residual`` of checked tensors."""

    a: torch.Tensor
    b: torch.Tensor
    out: torch.Tensor
    bias: torch.Tensor | None = None
    activation: str | None = None
    residual: torch.Tensor | None = None
    a_scale: Scale = UNSCALED
    b_scale: Scale = UNSCALED

    @property
    def sizes(self) -> tuple[int, int, int]:
        """M, N and K."""
        return self.a.shape[0], self.b.shape[1], self.a.shape[1]

    @property
    def by_blocks(self) -> bool:
        """Whether an operand has scales of blocks."""
        return self.a_scale.blocks or self.b_scale.blocks

    def in_parts(self, parts: int) -> Product:
        """Of so many parts of K, each into an fp32 matrix of its own; one is the product itself.
        What is added, and the activation, come after the parts."""
        if parts == 1:
            return self
        out = self.out.new_empty((parts, *self.out.shape), dtype=torch.float32)
        return Product(self.a, self.b, out, a_scale=self.a_scale, b_scale=self.b_scale)
