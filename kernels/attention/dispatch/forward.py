"""Which back end serves a forward pass."""

from __future__ import annotations

import torch

from kernels.attention.common.numerics.fp8_scales import Scales
from kernels.attention.common.numerics.heavy_rows import all_marked
from kernels.attention.common.problem import Problem
from kernels.attention.decode import few_queries
from kernels.attention.portable.forward import kernel as forward
from kernels.runtime import backends, targets


def launch(
    problem: Problem, out: torch.Tensor, lse: torch.Tensor | None, rows: torch.Tensor | None
) -> None:
    """The kernel of this architecture where there is one and it takes the problem. ``lse`` and
    ``rows`` as ``forward.launch`` takes them."""
    with targets.on_device_of(problem.q, "q"):
        if few_queries.supported(problem):
            found = rows if lse is None else lse
            assert found is not None
            few_queries.launch(problem, out, found)
            if rows is not None:  # of parts of a row no largest weight is known
                rows.copy_(all_marked(found))
            return
        name, given = "attention.hopper.forward.launch", (problem, out, lse, rows)
        if not problem.alike or not backends.specialised(name, *given):
            forward.launch(*given)


def launch_fp8(problem: Problem, out: torch.Tensor, lse: torch.Tensor, scales: Scales) -> None:
    """The same of fp8."""
    with targets.on_device_of(problem.q, "q"):
        if not backends.specialised("attention.hopper.fp8.launch", problem, out, lse, scales):
            forward.launch(problem, out, lse, scales=scales)
