"""The backward pass: kernels of this architecture where there are any, else the portable ones; of
packed sequences also what both leave to do."""

from __future__ import annotations

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
    name = "attention.hopper.backward.heavy_rows.launch"
    if problem.alike and given.out.numel() and problem.k.numel():
        with targets.on_device_of(problem.q, "q"):
            hopper = backends.on_this_target(name)
            if hopper is not None and hopper.supported(problem, given.dout):
                found = torch.empty_like(given.lse)
                if backends.serves(name, hopper.launch, problem, given, found):
                    return found
    return heavy_rows.launch(problem, given)


def _specialised(
    problem: Problem, given: Given, less: torch.Tensor | None
) -> list[torch.Tensor] | None:
    """Gradients of q, k and v by kernels of this architecture, None where none serves."""
    name = "attention.hopper.backward.launch"
    with targets.on_device_of(problem.q, "q"):
        hopper = backends.on_this_target(name)
        if hopper is None or not (hopper.supported(problem, given.dout) and hopper.faster(problem)):
            return None
        made = backward.reserved(problem)
        now = given if less is None else given._replace(dlse=less)
        served = backends.serves(name, hopper.launch, problem, now, made, marked=less is not None)
        return list(made) if served else None
