"""Attention over packed sequences as operators of torch: fake tensors, autograd, torch.compile."""

from __future__ import annotations

from typing import Any

import torch

from kernels.attention.common.options import NAMES, Options
from kernels.attention.common.packed.sequences import Packed
from kernels.attention.common.packed.tail import clear
from kernels.attention.common.problem import Given, Mask, Problem
from kernels.attention.dispatch import backward as gradients
from kernels.attention.dispatch import forward as dispatch_forward
from kernels.runtime import autograd
from kernels.runtime.launch import prepared

from . import dense as operators
from .outputs import with_marks

# Of ``Options``: no bias, no lists of blocks.
ASKED = NAMES[: NAMES.index("exact_gradients") + 1]


@torch.library.custom_op("warpwatch::flash_attention_varlen", mutates_args=())
@prepared
def flash_attention_varlen_op(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_q: torch.Tensor,
    cu_k: torch.Tensor,
    max_q: int,
    max_k: int,
    causal: bool,
    right: int,
    left: int | None,
    scale: float,
    softcap: float | None = None,
    slopes: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    dropout: float | None = None,
    seed: torch.Tensor | None = None,
    exact_gradients: bool = True,
    return_lse: bool = True,
    used_q: torch.Tensor | None = None,
    used_k: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """As ``flash_attention_op`` for checked arguments."""
    out, lse, rows = with_marks(q, v, exact_gradients=exact_gradients, return_lse=return_lse)
    packed = Packed.of(q, k, cu_q, cu_k, max_q, max_k, used_q, used_k)
    if out.numel():
        for one in (lse, rows):
            if one.numel():
                clear(out, packed.queries, lse=one)
    if out.numel() and max_q and cu_q.numel() > 1:
        options = Options(softcap, slopes, sinks, dropout, seed, exact_gradients)
        q, k, v = map(packed.spread, (q, k, v))
        problem = Problem(q, k, v, Mask(causal, right, left), scale, packed, options)
        marked = operators.there(rows)
        dispatch_forward.launch(problem, packed.spread(out), operators.there(lse), marked)
    return out, lse, rows


@flash_attention_varlen_op.register_fake
def _fake(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *arguments: Any, **named: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return with_marks(q, v, **operators.asked(arguments[8:], named, ASKED))


@torch.library.custom_op("warpwatch::flash_attention_varlen_backward", mutates_args=())
@prepared
def flash_attention_varlen_backward_op(
    dout: torch.Tensor,
    dlse: torch.Tensor | None,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    cu_q: torch.Tensor,
    cu_k: torch.Tensor,
    max_q: int,
    max_k: int,
    causal: bool,
    right: int,
    left: int | None,
    scale: float,
    softcap: float | None = None,
    slopes: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    dropout: float | None = None,
    seed: torch.Tensor | None = None,
    exact_gradients: bool = False,
    used_q: torch.Tensor | None = None,
    used_k: torch.Tensor | None = None,
) -> list[torch.Tensor]:
    if cu_q.numel() == 1:  # no sequence
        return [one.zero_() for one in operators.like(q, k, v, sinks)]
    packed = Packed.of(q, k, cu_q, cu_k, max_q, max_k, used_q, used_k)
    options = Options(softcap, slopes, sinks, dropout, seed, exact_gradients)
    dout, q, k, v, out = map(packed.spread, (dout, q, k, v, out))
    problem = Problem(q, k, v, Mask(causal, right, left), scale, packed, options)
    return gradients.launch(problem, Given(dout, dlse, out, lse))


@flash_attention_varlen_backward_op.register_fake
def _gradients(dout: Any, dlse: Any, q: Any, k: Any, v: Any, *others: Any) -> list[torch.Tensor]:
    options = dict(zip(ASKED, others[10:], strict=False))
    return operators.like(q, k, v, options.get("sinks"))


def _backward(
    dout: Any, dlse: Any, out: Any, lse: Any, _: bool, q: Any, k: Any, v: Any, *others: Any
) -> list[torch.Tensor]:
    found: list[torch.Tensor] = differentiate(dout, dlse, q, k, v, out, lse, *others)
    return found


differentiate = autograd.differentiable_once(
    flash_attention_varlen_backward_op, "flash_attention_varlen"
)


attend = operators.differentiable(flash_attention_varlen_op, _backward, leading=11, options=ASKED)
