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
from .schemas import IN_SEQUENCES, QKV, SEQUENCES, operator, options_of, scores

# Of ``Options``: no bias, no lists of blocks.
ASKED = NAMES[: NAMES.index("exact_gradients") + 1]


@operator(
    "warpwatch::flash_attention_varlen",
    *(QKV, SEQUENCES, IN_SEQUENCES, scores(ASKED)),
    "bool return_lse=True, Tensor? used_q=None, Tensor? used_k=None",
    returns=operators.OUTPUTS,
)
@prepared
def flash_attention_varlen_op(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *arguments: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """As ``flash_attention_op`` for checked arguments."""
    cu_q, _, max_q, _, *mask, scale = arguments[:8]
    options, return_lse = options_of(arguments[8:15], ASKED)
    out, lse, rows = with_marks(
        q, v, exact_gradients=options.exact_gradients, return_lse=return_lse
    )
    packed = Packed.of(q, k, *arguments[:4], *arguments[15:])
    if out.numel():
        for one in (lse, rows):
            if one.numel():
                clear(out, packed.queries, lse=one)
    if out.numel() and max_q and cu_q.numel() > 1:
        q, k, v = map(packed.spread, (q, k, v))
        problem = Problem(q, k, v, Mask(*mask), scale, packed, options)
        marked = operators.there(rows)
        dispatch_forward.launch(problem, packed.spread(out), operators.there(lse), marked)
    return out, lse, rows


flash_attention_varlen_op.register_fake(operators.fake(8, ASKED))


@operator(
    "warpwatch::flash_attention_varlen_backward",
    *("Tensor dout, Tensor? dlse", QKV, "Tensor out, Tensor lse", SEQUENCES, IN_SEQUENCES),
    *(scores(ASKED, exact=False), "Tensor? used_q=None, Tensor? used_k=None"),
    returns="Tensor[]",
)
@prepared
def flash_attention_varlen_backward_op(
    dout: Any, dlse: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, *arguments: Any
) -> list[torch.Tensor]:
    cu_q, _, _, _, *mask, scale = arguments[:8]
    options = Options(*arguments[8:14])
    if cu_q.numel() == 1:  # no sequence
        return [one.zero_() for one in operators.like(q, k, v, options.sinks)]
    packed = Packed.of(q, k, *arguments[:4], *arguments[14:])
    dout, q, k, v, out = map(packed.spread, (dout, q, k, v, out))
    problem = Problem(q, k, v, Mask(*mask), scale, packed, options)
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
