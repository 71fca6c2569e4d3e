"""The backward pass: kernels of this architecture where there are any, else the portable ones; of
packed sequences also what both leave to do."""

from __future__ import annotations

from types import ModuleType

import torch

from kernels.attention.common.numerics import exactness
from kernels.attention.common.packed.tail import clear
from kernels.attention.common.problem import Given, Problem
from kernels.attention.portable.backward import heavy_rows, short_sequences
from kernels.attention.portable.backward import launch as backward
from kernels.runtime import backends, targets


def launch(problem: Problem, given: Given, *, bias_grad: bool = False) -> list[torch.Tensor]:
    """As ``backward.gradients`` returns them; of packed sequences with zeros after the last, and
    each as exact as the keys that its own rows see ask for."""
    exact, less, found = problem.is_exact, None, None
    options, (rows, keys) = problem.options, problem.lengths
    # A bias whose gradient is a sum over keys or queries is served exactly as it is.
    summed = exactness.sums_over_keys(options.bias, keys)
    summed = summed or exactness.sums_over_rows(options.bias, rows)
    if options.exact_gradients and not (exact or (bias_grad and summed)):
        less = corrected(problem, given)
    if problem.alike and not exact:
        found = _specialised(problem, given, less)
    if found is None:
        found = backward.gradients(problem, given, bias_grad=bias_grad, corrected=less)
    packed = problem.packed
    if packed is not None and given.out.numel() and problem.k.numel():
        dq, dk, dv = found[:3]
        if exact:
            clear(dq, packed.queries, keys=(dk, dv), cu_k=packed.keys)
        else:
            short_sequences.launch(problem, given, [dq, dk, dv], few=exactness.FEW_KEYS)
    return found


def corrected(problem: Problem, given: Given) -> torch.Tensor | None:
    """What takes dlse's place, as ``heavy_rows.launch`` returns it, by the kernel of this
    architecture where one takes the problem."""
    found: list[torch.Tensor] = []

    def run(hopper: ModuleType) -> None:
        found.append(torch.empty_like(given.lse))
        hopper.launch(problem, given, *found)

    if problem.alike and given.out.numel() and problem.k.numel():
        with targets.on_device_of(problem.q, "q"):
            if backends.specialised(
                "attention.hopper.backward.heavy_rows.launch",
                lambda hopper: hopper.supported(problem, given.dout),
                run,
            ):
                return found[0]
    return heavy_rows.launch(problem, given)


def _specialised(
    problem: Problem, given: Given, less: torch.Tensor | None
) -> list[torch.Tensor] | None:
    """Gradients of q, k and v by kernels of this architecture, None where none serves."""
    found: list[torch.Tensor] = []

    def takes(hopper: ModuleType) -> bool:
        return bool(hopper.supported(problem, given.dout) and hopper.faster(problem))

    def run(hopper: ModuleType) -> None:
        made = backward.reserved(problem)
        now = given if less is None else given._replace(dlse=less)
        hopper.launch(problem, now, made, marked=less is not None)
        found.extend(made)

    with targets.on_device_of(problem.q, "q"):
        served = backends.specialised("attention.hopper.backward.launch", takes, run)
    return found if served else None
