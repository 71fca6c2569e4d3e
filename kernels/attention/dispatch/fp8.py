"""Which back end serves a forward pass in fp8."""

from __future__ import annotations

import torch

from kernels.attention.common.numerics.fp8_scales import Scales
from kernels.attention.common.problem import Problem
from kernels.attention.portable.forward import fp8
from kernels.runtime import backends, targets


def launch(problem: Problem, out: torch.Tensor, lse: torch.Tensor, scales: Scales) -> None:
    """The kernel of this architecture where there is one and it takes the problem."""
    with targets.on_device_of(problem.q, "q"):
        if not backends.specialised("attention.hopper.fp8.launch", problem, out, lse, scales):
            fp8.launch(problem, out, lse, scales)
