"""One pass over a plan's launches: its tensors and workspaces, and each launch by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import triton

from kernels.attention.common.addressing import Layout, Strides
from kernels.attention.common.block_masks import Blocks
from kernels.attention.common.packed.sequences import described
from kernels.attention.common.problem import Given, Problem
from kernels.attention.common.program_order import together
from kernels.runtime import targets
from kernels.runtime.descriptors import TensorDescriptor
from kernels.runtime.launch import noted

from .key_grads import attention_backward_kv
from .plan import Plan
from .query_grads import attention_backward_q
from .row_stats import attention_backward_delta, attention_backward_rows


@dataclass(frozen=True, eq=False)
class Pass:
    """A plan with its tensors. ``found`` are gradients of q, k, v and, or None, of the bias,
    ``lse`` those of rows that are served, ``less`` what delta is less by. A row of ``exponent``
    and delta is one of ``per_head``. ``dots`` are as ``attention_backward_q`` writes
    them, ``far`` as ``far_rows.find`` returns ends."""

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
    tiles: dict[str, Any]
    own_queries: Blocks
    own_keys: Blocks
    dots: torch.Tensor | None = None
    far: torch.Tensor | None = None

    def shared(self, **more: torch.Tensor) -> dict[str, Any]:
        """What every kernel but delta's takes by these names; strides those of ``more``, too."""
        one = self.problem
        tensors = {"q": one.q, "k": one.k, "v": one.v, "dout": self.given.dout}
        others = {"far": self.far, "total": self.total, "scale": one.scale}
        strides = Layout.of(**tensors, **more)
        return {**tensors, **others, "strides": strides, **one.sizes, **one.sight, **self.tiles}

    def walked(
        self, tensor: torch.Tensor, rows: int, block: str
    ) -> torch.Tensor | TensorDescriptor:
        """What a program walks, in tiles of the columns that ``block`` names. What it owns comes
        through pointers: wgmma then reads it from shared memory, where a tile out of a rank-4
        descriptor would occupy registers for the whole loop."""
        if not self.plan.tma:
            return tensor
        return described(self.problem.packed, tensor, rows, self.tiles[block])


def with_workspaces(
    plan: Plan,
    problem: Problem,
    given: Given,
    found: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None],
    lse: torch.Tensor,
    less: torch.Tensor | None,
) -> Pass:
    """With its workspaces."""
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
    return Pass(
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
        problem.tiles(targets.current()),
        problem.walked(),
        problem.walked(owns_keys=True),
    )


def run(one: Pass) -> None:
    for name in one.plan.launches:
        launched = _LAUNCHES[name]
        launched(one)


def _delta(one: Pass) -> None:
    problem, config = one.problem, one.plan.config
    # A delta depends on its row only: packed sequences are one to this kernel.
    length = problem.q.shape[1]
    count = problem.batch if problem.packed is None else 1
    grid = (triton.cdiv(length, config.delta_rows) * count * problem.heads,)
    noted(attention_backward_delta, grid)(
        out=one.given.out,
        dout=one.given.dout,
        lse=one.given.lse,
        dlse=one.less,
        delta=one.delta,
        out_strides=Strides(*one.given.out.stride()),
        dout_strides=Strides(*one.given.dout.stride()),
        heads=problem.heads,
        seqlen_q=length,
        BLOCK_M=config.delta_rows,
        MARKED=one.plan.marked,
        HEAD_DIM_V=one.tiles["HEAD_DIM_V"],
        BLOCK_DV=one.tiles["BLOCK_DV"],
    )


def _rows(one: Pass) -> None:
    problem, given, config = one.problem, one.given, one.plan.config.q
    exact, blocks = one.plan.exact, one.plan.row_blocks
    noted(attention_backward_rows, (blocks * problem.batch * problem.heads,))(
        **one.shared(out=given.out),
        out=given.out,
        dlse=None if exact else given.dlse,
        lse=one.lse,
        shift=one.shift if exact else None,
        delta=one.delta,
        n_blocks=blocks,
        heads=problem.heads,
        blocks=one.own_queries,
        **config.constants(),
    )


def _queries(one: Pass) -> None:
    problem, given, planned = one.problem, one.given, one.plan
    (seqlen_q, seqlen_k), config = problem.lengths, planned.config.q
    with_delta, heads = planned.with_delta, problem.batch * problem.heads
    alone = problem.packed is None
    dq, _, _, dbias = one.found
    walked = {
        "k": one.walked(problem.k, config.block_n, "BLOCK_D"),
        "v": one.walked(problem.v, config.block_n, "BLOCK_DV"),
    }
    noted(attention_backward_q, (triton.cdiv(seqlen_q, config.block_m) * heads,))(
        **(one.shared(out=given.out) | walked),
        lse=one.shift,
        delta=one.delta,
        dlse=one.less if planned.exact or with_delta else None,
        dots=one.dots,
        dq=dq,
        dbias=dbias,
        out=given.out if with_delta else None,
        exponent=one.exponent,
        heads=problem.heads,
        rows=one.per_head,
        blocks=one.own_queries,
        EVEN=alone and seqlen_k % config.block_n == 0,
        ROWS=planned.padded,
        TMA=planned.tma,
        BRANCH=planned.branch and config.branch,
        MARKED=planned.marked and with_delta,
        TOGETHER=together(heads) if planned.ordered and alone else 0,
        **config.constants(),
    )


def _keys(one: Pass) -> None:
    problem, planned = one.problem, one.plan
    (seqlen_q, seqlen_k), config = problem.lengths, planned.config.kv
    options, heads = problem.options, problem.batch * problem.kv_heads
    alone, unlisted = problem.packed is None, problem.options.block_mask is None
    flat = config.flat and options.plain and problem.heads > problem.kv_heads
    _, dk, dv, _ = one.found
    walked = {
        "q": one.walked(problem.q, config.block_m, "BLOCK_D"),
        "dout": one.walked(one.given.dout, config.block_m, "BLOCK_DV"),
        "tokens": one.per_head,
    }
    noted(attention_backward_kv, (triton.cdiv(seqlen_k, config.block_n) * heads,))(
        **(one.shared() | walked),
        lse=one.exponent if planned.padded else one.shift,
        delta=one.delta,
        dlse=one.given.dlse if planned.exact else None,
        dk=dk,
        dv=dv,
        kv_heads=problem.kv_heads,
        blocks=one.own_keys,
        EVEN=alone and unlisted and seqlen_q % config.block_m == 0,
        ROWS=planned.padded,
        TMA=planned.tma,
        BRANCH=config.branch and unlisted,
        FLAT=flat,
        # Packed sequences' kernel has no registers for the order where the loops are nested.
        TOGETHER=together(heads) if planned.ordered and (alone or flat) else 0,
        **config.constants(),
    )


_LAUNCHES: dict[str, Callable[[Pass], None]] = {
    "delta": _delta,
    "rows": _rows,
    "queries": _queries,
    "keys": _keys,
}
