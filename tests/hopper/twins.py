"""What tests that hold Gluon kernels against their portable twins on a GPU share."""

from __future__ import annotations

import math
from itertools import accumulate

import pytest
import torch

from kernels.attention.common.packed.sequences import Packed
from kernels.attention.common.problem import Given, Mask, Problem

# Packed sequences: tokens of queries and of keys, heads of both, and the longest that is told.
PACKED = pytest.mark.parametrize(
    ("lengths_q", "lengths_k", "heads", "longest"),
    [
        ((333, 0, 1, 700, 64, 129, 2), (500, 10, 77, 300, 0, 129, 1500), (8, 2), None),
        ((2100, 5, 300), (2100, 70, 2500), (4, 1), None),
        ((100, 200, 192), (100, 300, 5), (2, 2), 9000),
        (tuple(i * 37 % 201 for i in range(300)),) * 2 + ((2, 2), None),
    ],
    ids=["uneven", "long", "longest-overstated", "300-sequences"],
)


def relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found.double() - expected.double()).norm() / expected.double().norm())


def between_nan(
    lengths: tuple[int, ...], heads: int, head_dim: int, dtype: torch.dtype
) -> torch.Tensor:
    """(7 + tokens + 7, heads, head_dim): rows of NaN at either end belong to no sequence."""
    x = torch.randn((sum(lengths) + 14, heads, head_dim), device="cuda").to(dtype)
    x[:7] = x[-7:] = math.nan
    return x


def packed_of(
    lengths_q: tuple[int, ...], lengths_k: tuple[int, ...], longest: int | None
) -> Packed:
    """Of rows as ``between_nan`` makes them."""
    ends = (
        torch.tensor([*accumulate(lengths, initial=7)], dtype=torch.int32, device="cuda")
        for lengths in (lengths_q, lengths_k)
    )
    return Packed(*ends, longest or max(lengths_q), longest or max(lengths_k))


def portable_gradients(
    dout: torch.Tensor,
    dlse: torch.Tensor | None,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    *,
    causal: bool,
    causal_offset: int,
    left_offset: int | None = None,
    scale: float,
    packed: Packed | None = None,
) -> list[torch.Tensor]:
    """Those of q, k and v by the kernels that every target runs."""
    from kernels.attention.portable.backward.launch import gradients

    problem = Problem(q, k, v, Mask(causal, causal_offset, left_offset), scale, packed)
    return gradients(problem, Given(dout, dlse, out, lse))
