"""The backward pass every target runs: rows, then queries, then keys and values; no atomics.

Scores are computed twice instead of adding into the queries' gradient from many programs, so the
gradients are the same bits at every run. portable/backward/plan.py says which launches there are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import triton

from kernels.attention.common.addressing import Strides, near, refuse_wide
from kernels.attention.common.columns import columns
from kernels.attention.common.numerics.constants import LOG2_E
from kernels.attention.common.options import PLAIN, Options
from kernels.attention.common.packed.sequences import Packed, described
from kernels.attention.common.problem import Given, Mask, Problem
from kernels.attention.common.program_order import together
from kernels.runtime import targets
from kernels.runtime.descriptors import TensorDescriptor
from kernels.runtime.launch import noted

from .far_rows import FarRows, find
from .key_grads import attention_backward_kv
from .plan import Plan, plan
from .query_grads import attention_backward_q
from .row_stats import attention_backward_delta, attention_backward_rows


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
) -> list[torch.Tensor]:
    """``gradients`` without a bias's, of tensors by themselves."""
    mask = Mask(causal, causal_offset, left_offset)
    return gradients(Problem(q, k, v, mask, scale, packed, options), Given(dout, dlse, out, lse))


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
        dbias = _reserved_for(options.bias, problem.scores)
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
        one = _prepared(planned, problem, given, (*found, dbias), lse, less)
        # rowsum(out * dout) holds out's rounding, most of what a sink's gradient would be off by.
        if not planned.exact and options.sinks is not None:
            one = replace(one, dots=torch.empty_like(lse))
        _run(one)
        if ends is not None:
            _run_far(one, FarRows(ends, (*found, dbias), one.dots))
    gradients = [*found]
    if options.sinks is not None:
        gradients.append(_of_the_sinks(one, options.sinks))
    if options.bias is not None and dbias is not None:
        gradients.append(dbias.sum_to_size(options.bias.shape).to(options.bias.dtype))
    return gradients


def reserved(problem: Problem) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Room for gradients of q, k and v, contiguous."""
    dq, dk, dv = (
        torch.empty_like(
            one if problem.packed is None else one[0], memory_format=torch.contiguous_format
        )
        for one in (problem.q, problem.k, problem.v)
    )
    return dq, dk, dv


def _reserved_for(bias: torch.Tensor, scores: tuple[int, int, int, int]) -> torch.Tensor:
    refuse_wide("its gradient", scores)
    # What no query sees is not visited. Blocks of one head meet no other's: no atomics.
    kind = bias.dtype if tuple(bias.shape) == scores else torch.float32
    return torch.zeros(scores, dtype=kind, device=bias.device)


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


@dataclass(frozen=True, eq=False)
class _Pass:
    """A plan with its tensors. ``found`` are gradients of q, k, v and, or None, of the bias,
    ``lse`` those of rows that are served, ``less`` what delta is less by. A row of ``exponent``
    and delta is one of ``per_head``."""

    plan: Plan
    problem: Problem
    given: Given
    found: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]
    lse: torch.Tensor
    less: torch.Tensor | None
    shift: torch.Tensor
    delta: torch.Tensor
    total: torch.Tensor | None
    exponent: torch.Tensor | None
    per_head: int | None
    columns: tuple[int, int]
    limits: tuple[Any, ...]
    own_queries: tuple[Any, ...]
    own_keys: tuple[Any, ...]
    dots: torch.Tensor | None = None
    far: FarRows | None = None

    @property
    def ends(self) -> torch.Tensor | None:
        return None if self.far is None else self.far.ends

    @property
    def strides(self) -> tuple[Strides, ...]:
        tensors = (self.problem.q, self.problem.k, self.problem.v, self.given.dout)
        return tuple(Strides(*one.stride()) for one in tensors)

    @property
    def lengths(self) -> tuple[Any, ...]:
        """Heads, those that share keys, and lengths."""
        one = self.problem
        return one.heads, one.heads // one.kv_heads, *one.lengths, one.tokens

    @property
    def values(self) -> dict[str, Any]:
        return {"HEAD_DIM_V": self.problem.head_dims[1], "BLOCK_DV": self.columns[1]}

    @property
    def shape(self) -> dict[str, Any]:
        own = {"HEAD_DIM": self.problem.head_dims[0], "BLOCK_D": self.columns[0]}
        return own | self.values | {"CAUSAL": self.problem.mask.causal}

    def walked(
        self, tensor: torch.Tensor, rows: int, block: int
    ) -> torch.Tensor | TensorDescriptor:
        """What a program walks. What it owns comes through pointers: wgmma then reads it from
        shared memory, where a tile out of a rank-4 descriptor would occupy registers for the whole
        loop."""
        return described(self.problem.packed, tensor, rows, block) if self.plan.tma else tensor


def _prepared(
    plan: Plan,
    problem: Problem,
    given: Given,
    found: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None],
    lse: torch.Tensor,
    less: torch.Tensor | None,
) -> _Pass:
    """With its workspaces."""
    options, mask = problem.options, problem.mask
    asked = options.arguments(problem.scale, problem.scores)
    own_queries = options.listed(mask.until, mask.left)
    own_keys = options.listed(mask.until, mask.left, owns_keys=True)
    exponent, per_head = None, problem.tokens
    if problem.packed is None:
        per_head = problem.lengths[0]
    if plan.padded:
        rows, batch = problem.q.shape[1], problem.batch
        blocks = triton.cdiv(rows, plan.padded)
        if problem.packed is not None:
            blocks, batch = rows // plan.padded + batch, 1
        per_head = plan.padded * blocks
        exponent, delta = lse.new_empty((2, problem.heads * batch, per_head))
    elif plan.marked and less is not None:
        delta = less
    else:
        delta = torch.empty_like(lse, dtype=plan.wide)
    total, shift = None, lse
    if plan.exact:
        total, shift = torch.empty_like(delta), torch.empty_like(lse)
    return _Pass(
        plan,
        problem,
        given,
        found,
        lse,
        less,
        shift,
        delta,
        total,
        exponent,
        per_head,
        columns(targets.current(), problem.q.dtype, *problem.head_dims),
        (mask.offset, mask.left, problem.scale, *asked),
        own_queries,
        own_keys,
    )


def _run_far(one: _Pass, far: FarRows) -> None:
    """Add what far rows give to what was found."""
    given = one.given
    with_bias = far.found[3] is not None
    planned = plan(
        targets.current(), one.problem, given, bias_grad=with_bias, corrected=False, far=True
    )
    again = _prepared(planned, one.problem, given, far.found, one.lse, given.dlse)
    if one.problem.options.block_mask is not None and again.total is not None:
        # Lists of blocks lead to rows that these launches leave out: without weights.
        again.shift.fill_(float("inf"))
        again.total.fill_(1.0)
        again.delta.zero_()
    _run(replace(again, far=far, dots=far.dots))


def _run(one: _Pass) -> None:
    for name in one.plan.launches:
        launched = _LAUNCHES[name]
        launched(one)


def _delta(one: _Pass) -> None:
    problem, config = one.problem, one.plan.config
    # A delta depends on its row only: packed sequences are one to this kernel.
    length = problem.q.shape[1]
    count = problem.batch if problem.packed is None else 1
    grid = (triton.cdiv(length, config.delta_rows) * count * problem.heads,)
    noted(attention_backward_delta, grid)(
        one.given.out,
        one.given.dout,
        one.given.lse,
        one.less,
        one.delta,
        Strides(*one.given.out.stride()),
        Strides(*one.given.dout.stride()),
        problem.heads,
        length,
        BLOCK_M=config.delta_rows,
        MARKED=one.plan.marked,
        **one.values,
    )


def _rows(one: _Pass) -> None:
    problem, given, config = one.problem, one.given, one.plan.config.q
    exact, blocks = one.plan.exact, one.plan.row_blocks
    noted(attention_backward_rows, (blocks * problem.batch * problem.heads,))(
        problem.q,
        problem.k,
        problem.v,
        given.out,
        given.dout,
        None if exact else given.dlse,
        one.lse,
        one.ends,
        one.shift if exact else None,
        one.delta,
        one.total,
        *problem.sequences,
        *one.strides,
        Strides(*given.out.stride()),
        blocks,
        *one.lengths,
        *one.limits,
        *one.own_queries,
        BLOCK_M=config.block_m,
        BLOCK_N=config.block_n,
        **one.shape,
        **config.options(),
    )


def _queries(one: _Pass) -> None:
    problem, given, planned = one.problem, one.given, one.plan
    (seqlen_q, seqlen_k), config = problem.lengths, planned.config.q
    with_delta, heads = planned.with_delta, problem.batch * problem.heads
    alone = problem.packed is None
    dq, _, _, dbias = one.found
    noted(attention_backward_q, (triton.cdiv(seqlen_q, config.block_m) * heads,))(
        problem.q,
        one.walked(problem.k, config.block_n, one.columns[0]),
        one.walked(problem.v, config.block_n, one.columns[1]),
        given.dout,
        one.shift,
        one.delta,
        one.total,
        one.less if planned.exact or with_delta else None,
        one.dots,
        dq,
        dbias,
        given.out if with_delta else None,
        one.exponent,
        one.ends,
        *problem.sequences,
        *one.strides,
        Strides(*given.out.stride()),
        *one.lengths,
        one.per_head,
        *one.limits,
        *one.own_queries,
        BLOCK_M=config.block_m,
        BLOCK_N=config.block_n,
        EVEN=alone and seqlen_k % config.block_n == 0,
        ROWS=planned.padded,
        TMA=planned.tma,
        **one.shape,
        BRANCH=planned.branch and config.branch,
        MARKED=planned.marked and with_delta,
        TOGETHER=together(heads) if planned.ordered and alone else 0,
        **config.options(),
    )


def _keys(one: _Pass) -> None:
    problem, planned = one.problem, one.plan
    (seqlen_q, seqlen_k), config = problem.lengths, planned.config.kv
    options, heads = problem.options, problem.batch * problem.kv_heads
    alone, unlisted = problem.packed is None, problem.options.block_mask is None
    flat = config.flat and options.plain and problem.heads > problem.kv_heads
    _, dk, dv, _ = one.found
    noted(attention_backward_kv, (triton.cdiv(seqlen_k, config.block_n) * heads,))(
        one.walked(problem.q, config.block_m, one.columns[0]),
        problem.k,
        problem.v,
        one.walked(one.given.dout, config.block_m, one.columns[1]),
        one.exponent if planned.padded else one.shift,
        one.delta,
        one.total,
        one.given.dlse if planned.exact else None,
        dk,
        dv,
        one.ends,
        *problem.sequences,
        *one.strides,
        problem.kv_heads,
        *one.lengths[1:-1],
        one.per_head,
        *one.limits,
        *one.own_keys,
        BLOCK_M=config.block_m,
        BLOCK_N=config.block_n,
        EVEN=alone and unlisted and seqlen_q % config.block_m == 0,
        ROWS=planned.padded,
        TMA=planned.tma,
        **one.shape,
        BRANCH=config.branch and unlisted,
        FLAT=flat,
        # Packed sequences' kernel has no registers for the order where the loops are nested.
        TOGETHER=together(heads) if planned.ordered and (alone or flat) else 0,
        **config.options(),
    )


_LAUNCHES: dict[str, Callable[[_Pass], None]] = {
    "delta": _delta,
    "rows": _rows,
    "queries": _queries,
    "keys": _keys,
}


def _of_the_sinks(one: _Pass, sinks: torch.Tensor) -> torch.Tensor:
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
