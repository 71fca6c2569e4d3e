"""Attention problems as back ends take them, from what tests write."""

from __future__ import annotations

import torch

from kernels.attention.common.options import PLAIN, Options
from kernels.attention.common.packed.sequences import Packed
from kernels.attention.common.problem import Mask, Problem


def problem_of(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    causal_offset: int = 0,
    left_offset: int | None = None,
    scale: float = 1.0,
    packed: Packed | None = None,
    options: Options = PLAIN,
) -> Problem:
    mask = Mask(causal, causal_offset, left_offset)
    return Problem(q, k, v, mask, scale, packed, options)
