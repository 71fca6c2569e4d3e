"""The backward pass every target runs: rows, then queries, then keys and values; no atomics.

Scores are computed twice instead of adding into the queries' gradient from many programs, so the
gradients are the same bits at every run. portable/backward/plan.py says which launches there are.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from kernels.attention.common.addressing import near, refuse_wide
from kernels.attention.common.numerics.constants import LOG2_E
from kernels.attention.common.problem import Found, Given, Problem
from kernels.runtime import targets

from .far_rows import find
from .passes import Pass, run, with_workspaces
from .plan import plan


def gradients(
    problem: Problem,
    given: Given,
    *,
    bias_grad: bool = False,
    corrected: torch.Tensor | None = None,
) -> list[torch.Tensor]:
    """Gradients of q, k and v, contiguous, for what ``forward.launch`` filled; of packed sequences
    without the batch axis, unwritten behind the last, and as exact as the longest one asks
    (portable/backward/short_sequences.py does the rest). After them those of the sinks, if there
    are any, and with ``bias_grad`` of the bias. ``corrected`` is what portable/backward/
    heavy_rows.py has in dlse's place, for kernels that are not exact; delta may overwrite it."""
    problem = problem.near()
    given = given._replace(dout=near(given.dout), out=near(given.out))
    options = problem.options
    found, dbias = reserved(problem), None
    if bias_grad and options.bias is not None:
        refuse_wide("its gradient", problem.scores)
        # What no query sees is not visited. Blocks of one head meet no other's: no atomics.
        whole = tuple(options.bias.shape) == problem.scores
        kind = options.bias.dtype if whole else torch.float32
        dbias = torch.zeros(problem.scores, dtype=kind, device=options.bias.device)
    if not given.out.numel() or not problem.k.numel():
        return _of_nothing(problem, given, found, bias_grad)
    with targets.on_device_of(problem.q, "q"):
        target = targets.current()
        known = corrected is not None
        planned = plan(target, problem, given, bias_grad=dbias is not None, corrected=known)
        lse, ends = given.lse, None
        if planned.finds_far:
            lse, ends = find(lse)
        elif options.bias is not None:
            # A row whose scores are all -inf has weights of 0, not NaN.
            lse = lse.masked_fill(lse == float("-inf"), torch.finfo(lse.dtype).max)
        less = corrected if planned.marked else given.dlse
        one = with_workspaces(planned, problem, given, (*found, dbias), lse, less)
        # rowsum(out * dout) holds out's rounding, most of what a sink's gradient would be off by.
        if not planned.exact and options.sinks is not None:
            one = replace(one, dots=torch.empty_like(lse))
        run(one)
        if ends is not None:
            _run_far(one, ends)
    gradients = [*found]
    if options.sinks is not None:
        gradients.append(_of_the_sinks(one, options.sinks))
    if options.bias is not None and dbias is not None:
        gradients.append(dbias.sum_to_size(options.bias.shape).to(options.bias.dtype))
    return gradients


def reserved(problem: Problem) -> Found:
    """Room for gradients of q, k and v, contiguous."""
    dq, dk, dv = (
        torch.empty_like(
            one if problem.packed is None else one[0], memory_format=torch.contiguous_format
        )
        for one in (problem.q, problem.k, problem.v)
    )
    return dq, dk, dv


def _of_nothing(
    problem: Problem, given: Given, found: tuple[torch.Tensor, ...], bias_grad: bool
) -> list[torch.Tensor]:
    """Where there is no score."""
    gradients = [one.zero_() for one in found]
    options, lse = problem.options, given.lse
    if options.sinks is not None:
        # A row without a key weighs only its sink.
        delta = torch.zeros_like(lse) if given.dlse is None else -given.dlse
        gradients.append(_of_sinks(options.sinks, lse, delta, unseen=lse == float("-inf")))
    if options.bias is not None and bias_grad:
        gradients.append(torch.zeros_like(options.bias, memory_format=torch.contiguous_format))
    return gradients


def _run_far(one: Pass, ends: torch.Tensor) -> None:
    """Add what far rows, of these ``ends``, give to what was found."""
    given = one.given
    with_bias = one.found[3] is not None
    planned = plan(
        targets.current(), one.problem, given, bias_grad=with_bias, corrected=False, far=True
    )
    again = with_workspaces(planned, one.problem, given, one.found, one.lse, given.dlse)
    if one.problem.options.block_mask is not None and again.total is not None:
        # Lists of blocks lead to rows that these launches leave out: without weights.
        again.shift.fill_(float("inf"))
        again.total.fill_(1.0)
        again.delta.zero_()
    run(replace(again, far=ends, dots=one.dots))


def _of_the_sinks(one: Pass, sinks: torch.Tensor) -> torch.Tensor:
    dlse, lse, delta = one.given.dlse, one.given.lse, one.delta
    exact, bias = one.plan.exact, one.problem.options.bias
    if exact or one.dots is not None:
        delta = (delta if one.dots is None else one.dots).double()
        delta = delta if dlse is None else delta - dlse
    unit = 1.0 if bias is not None and bias.dtype != torch.bool else LOG2_E
    shift = one.shift if exact else lse
    unseen = lse == float("-inf")
    return _of_sinks(sinks, shift, delta, one.total, unseen=unseen, unit=unit)


def _of_sinks(
    sinks: torch.Tensor,
    lse: torch.Tensor,
    delta: torch.Tensor,
    total: torch.Tensor | None = None,
    *,
    unseen: torch.Tensor,
    unit: float = LOG2_E,
) -> torch.Tensor:
    """(heads,): the weight of a row's sink times -delta, whose dp is 0, summed over rows. With
    ``total`` lse is the shift of portable/backward/row_stats.py, in which a score is ``unit``.
    ``unseen`` rows, which sum up nothing or lie behind the last of packed sequences, add nothing,
    whatever delta and total are there."""
    if total is None:
        weights = torch.exp(sinks[:, None] - lse)
    else:  # fp32: not a rounding more than the formula has
        exponents = (sinks.double()[:, None] * unit - lse) * (LOG2_E / unit)
        weights = torch.exp2(exponents) / total
    rows = -(weights * delta).masked_fill_(unseen, 0.0).sum(-1)
    return (rows if rows.dim() == 1 else rows.sum(0)).float()
