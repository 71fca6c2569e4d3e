"""Values of more columns than a kernel has: these are attended to part by part."""

from __future__ import annotations

from collections.abc import Callable

import torch

from kernels.attention.common.shapes import MAX_HEAD_DIM

Attend = Callable[[torch.Tensor, bool], tuple[torch.Tensor, torch.Tensor]]


def in_parts(
    attend: Attend, v: torch.Tensor, return_lse: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """``attend(v, return_lse)``, (out, log-sum-exp), where need be for some columns of v at a time:
    the weights are the same for each."""
    if v.shape[-1] <= MAX_HEAD_DIM:
        return attend(v, return_lse)
    first, *others = v.split(MAX_HEAD_DIM, -1)
    out, lse = attend(first, return_lse)
    return torch.cat((out, *(attend(one, False)[0] for one in others)), -1), lse
