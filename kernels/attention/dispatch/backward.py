"""The backward pass: kernels of this architecture where there are any, else the portable ones; of
packed sequences also what both leave to do."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from kernels.attention.common.numerics import exactness
from kernels.attention.common.options import PLAIN, Options
from kernels.attention.common.packed import tail as packed_rest
from kernels.attention.common.packed.sequences import Packed
from kernels.attention.common.problem import Given, Mask, Problem
from kernels.attention.portable.backward import heavy_rows, short_sequences
from kernels.attention.portable.backward import launch as backward
from kernels.runtime import backends, targets


def launch(
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
    left_offset: int | None,
    scale: float,
    packed: Packed | None = None,
    options: Options = PLAIN,
    bias_grad: bool = False,
) -> list[torch.Tensor]:
    """As ``backward.gradients`` returns them; of packed sequences with zeros after the last, and
    each as exact as the keys that its own rows see ask for."""
    mask = Mask(causal, causal_offset, left_offset)
    problem = Problem(q, k, v, mask, scale, packed, options)
    given = Given(dout, dlse, out, lse)
    exact, less, found = problem.is_exact, None, None
    bias, (rows, keys) = options.bias, problem.lengths
    # A bias whose gradient is a sum over keys or queries is served exactly as it is.
    summed = exactness.sums_over_keys(bias, keys) or exactness.sums_over_rows(bias, rows)
    if options.exact_gradients and not (exact or (bias_grad and summed)):
        less = _corrected(problem, given)
    if problem.alike and not exact:
        found = _specialised(problem, given, less)
    if found is None:
        found = backward.gradients(problem, given, bias_grad=bias_grad, corrected=less)
    if packed is not None and out.numel() and k.numel():
        dq, dk, dv = found[:3]
        if exact:
            packed_rest.clear_gradients(dq, dk, dv, packed.queries, packed.keys)
        else:
            short_sequences.launch(problem, given, [dq, dk, dv], few=exactness.FEW_KEYS)
    return found


def corrected(
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
    left_offset: int | None,
    scale: float,
    packed: Packed | None = None,
    options: Options = PLAIN,
) -> torch.Tensor | None:
    """What takes dlse's place, by itself."""
    mask = Mask(causal, causal_offset, left_offset)
    problem = Problem(q, k, v, mask, scale, packed, options)
    return _corrected(problem, Given(dout, dlse, out, lse))


def _by_name(problem: Problem) -> dict[str, Any]:
    """As kernels of one architecture take it."""
    causal, offset, left = problem.mask
    masks = {"causal": causal, "causal_offset": offset, "left_offset": left}
    return {**masks, "packed": problem.packed}


def _corrected(problem: Problem, given: Given) -> torch.Tensor | None:
    """As ``heavy_rows.launch`` returns it, by the kernel of this architecture where one takes the
    problem."""
    q, k, v, scale = problem.q, problem.k, problem.v, problem.scale
    named, (dout, dlse, out, lse) = _by_name(problem), given
    found: list[torch.Tensor] = []

    def run(hopper: ModuleType) -> None:
        found.append(torch.empty_like(lse))
        hopper.launch(dout, dlse, q, k, v, out, lse, *found, scale=scale, **named)

    if problem.alike and out.numel() and k.numel():
        with targets.on_device_of(q, "q"):
            if backends.specialised(
                "attention.hopper.backward.heavy_rows.launch",
                lambda hopper: hopper.supported(q, k, v, dout, scale, **named),
                run,
            ):
                return found[0]
    return heavy_rows.launch(problem, given)


def _specialised(
    problem: Problem, given: Given, less: torch.Tensor | None
) -> list[torch.Tensor] | None:
    """Gradients of q, k and v by kernels of this architecture, None where none serves."""
    q, k, v, scale, packed = problem.q, problem.k, problem.v, problem.scale, problem.packed
    named, (dout, dlse, out, lse) = _by_name(problem), given
    windowed = problem.mask.left is not None
    found: list[torch.Tensor] = []

    def takes(hopper: ModuleType) -> bool:
        seen = problem.keys_seen
        return bool(
            hopper.supported(q, k, v, dout, scale, **named)
            and hopper.faster(q, k, seen, windowed=windowed, packed=packed)
        )

    def run(hopper: ModuleType) -> None:
        found.extend(backward.reserved(problem))
        tensors = (dout, dlse if less is None else less, q, k, v, out, lse, *found)
        hopper.launch(hopper.Tensors(*tensors, less is not None), scale=scale, **named)

    with targets.on_device_of(q, "q"):
        served = backends.specialised("attention.hopper.backward.launch", takes, run)
    return found if served else None
