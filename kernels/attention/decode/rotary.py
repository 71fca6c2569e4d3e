"""Rotary position embedding of rows as they are loaded."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl


@dataclass(frozen=True)
class Rotary:
    """Row p of ``cos`` and ``sin`` holds the angles of position p, one of each pair of columns. The
    new tokens of a sequence stand from its ``first`` position on, int32 (batch,), or after the
    keys of its cache."""

    cos: torch.Tensor
    sin: torch.Tensor
    interleaved: bool
    first: torch.Tensor | None = None

    @classmethod
    def of(
        cls,
        cos: torch.Tensor | None,
        sin: torch.Tensor | None,
        interleaved: bool,
        first: torch.Tensor | None,
    ) -> Rotary | None:
        return None if cos is None or sin is None else cls(cos, sin, interleaved, first)

    @property
    def columns(self) -> int:
        """How many columns are turned, from the first on."""
        return 2 * self.cos.shape[1]

    @property
    def positions(self) -> int:
        return min(self.cos.shape[0], self.sin.shape[0])


@triton.jit
def load_columns(rows, in_rows, stride_d, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr):
    """[R, BLOCK_D] from pointers ``rows`` [R]."""
    o_d = tl.arange(0, BLOCK_D)
    mask = in_rows[:, None] & (o_d < HEAD_DIM)[None, :]
    return tl.load(rows[:, None] + o_d[None, :] * stride_d, mask=mask, other=0.0)


@triton.jit
def load_rotated(
    rows,
    o_position,
    in_rows,
    given,
    stride_d,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    ROTARY: tl.constexpr,
    INTERLEAVED: tl.constexpr,
):
    """[R, BLOCK_D] in fp32 from pointers ``rows`` [R], each rotated to ``o_position`` [R].

    Of each pair (x, y) of the first ROTARY columns, x becomes x cos - y sin and y becomes
    y cos + x sin (Su et al., 2021). A pair is two neighbours with INTERLEAVED, else column i and
    i + ROTARY / 2.
    """
    HALF: tl.constexpr = ROTARY // 2
    o_d = tl.arange(0, BLOCK_D)
    b_x = load_columns(rows, in_rows, stride_d, HEAD_DIM, BLOCK_D).to(tl.float32)
    turned = o_d < ROTARY
    if INTERLEAVED:
        first = o_d % 2 == 0
        o_angle = o_d // 2
        o_pair = tl.where(first, o_d + 1, o_d - 1)
    else:
        first = o_d < HALF
        o_angle = o_d % HALF
        o_pair = tl.where(first, o_d + HALF, o_d - HALF)
    mask = in_rows[:, None] & turned[None, :]
    b_y = tl.load(rows[:, None] + o_pair[None, :] * stride_d, mask=mask, other=0.0)
    p_cos = given.cos.at + o_position[:, None] * given.cos.row
    p_cos += o_angle[None, :] * given.cos.column
    p_sin = given.sin.at + o_position[:, None] * given.sin.row
    p_sin += o_angle[None, :] * given.sin.column
    b_cos = tl.load(p_cos, mask=mask, other=1.0).to(tl.float32)
    b_sin = tl.load(p_sin, mask=mask, other=0.0).to(tl.float32)
    return b_x * b_cos + b_y.to(tl.float32) * tl.where(first[None, :], -b_sin, b_sin)
