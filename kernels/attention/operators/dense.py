"""Attention as operators torch knows: fake tensors, autograd, torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernels.attention.common.options import NAMES, Options
from kernels.attention.common.problem import Given, Mask, Problem
from kernels.attention.dispatch import backward as gradients
from kernels.attention.dispatch.forward import launch
from kernels.runtime import autograd, checks
from kernels.runtime.launch import prepared

from .outputs import with_marks
from .schemas import MASK, QKV, operator, options_of, scores

OUTPUTS = "(Tensor, Tensor, Tensor)"


@operator(
    "warpwatch::flash_attention", QKV, MASK, scores(), "bool return_lse=True", returns=OUTPUTS
)
@prepared
def flash_attention_op(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *arguments: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(out, log-sum-exp, another one with marks) for checked arguments of layout (batch, seqlen,
    heads, head_dim). The last is for ``exact_gradients`` of 16 bits
    (common/numerics/heavy_rows.py), else it is without elements; so is the other where only the
    last is needed."""
    *mask, scale = arguments[:4]
    options, return_lse = options_of(arguments[4:])
    problem = Problem(q, k, v, Mask(*mask), scale, None, options)
    return _forward(problem, exact_gradients=options.exact_gradients, return_lse=return_lse)


def _forward(
    problem: Problem, *, exact_gradients: bool, return_lse: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    asked = {"exact_gradients": exact_gradients, "return_lse": return_lse}
    out, lse, rows = with_marks(problem.q, problem.v, **asked)
    if out.numel():
        launch(problem, out, there(lse), there(rows))
    return out, lse, rows


def there(rows: torch.Tensor) -> torch.Tensor | None:
    """None where it is without elements."""
    return rows if rows.numel() else None


def fake(others: int, names: Sequence[str] = NAMES) -> Callable[..., Any]:
    """Outputs for torch's tracers, of an operator with ``others`` before options of ``names``."""

    def outputs(q: Any, _: Any, v: Any, *arguments: Any, **named: Any) -> Any:
        options, return_lse = options_of(arguments[others:], names, **named)
        return with_marks(q, v, exact_gradients=options.exact_gradients, return_lse=return_lse)

    return outputs


flash_attention_op.register_fake(fake(4))


@operator(
    "warpwatch::flash_attention_backward",
    "Tensor dout, Tensor? dlse, Tensor out, Tensor lse, bool bias_grad",
    *(QKV, MASK, scores(exact=False)),
    returns="Tensor[]",
)
@prepared
def flash_attention_backward_op(
    dout: Any, dlse: Any, out: Any, lse: Any, bias_grad: bool, *arguments: Any
) -> list[torch.Tensor]:
    """As ``gradients.launch`` returns them."""
    q, k, v, *mask, scale = arguments[:7]
    problem = Problem(q, k, v, Mask(*mask), scale, None, Options(*arguments[7:]))
    return gradients.launch(problem, Given(dout, dlse, out, lse), bias_grad=bias_grad)


def differentiable(
    forward: Any, backward: Callable[..., Any], leading: int, options: Sequence[str] = NAMES
) -> Callable[..., Any]:
    """Give ``forward`` its gradients: ``backward`` takes (dout, dlse, out, lse, whether the bias
    needs one) and the same arguments but ``return_lse``: q, k, v, others up to ``leading``,
    ``options`` of ``Options``, and what stands behind that. What comes back calls it."""
    names = ("q", "k", "v", *[""] * (leading - 3), *options, "return_lse")

    def remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        ctx.arguments = [None if isinstance(one, torch.Tensor) else one for one in inputs]
        ctx.places = [i for i, one in enumerate(inputs) if isinstance(one, torch.Tensor)]
        out, lse, rows = output
        ctx.save_for_backward(
            out, rows if rows.dim() > 1 else lse, *(inputs[i] for i in ctx.places)
        )
        ctx.set_materialize_grads(False)

    def differentiate(ctx: Any, dout: Any, dlse: Any, _: Any) -> tuple[torch.Tensor | None, ...]:
        out, lse, *saved = ctx.saved_tensors
        arguments = list(ctx.arguments)
        for i, tensor in zip(ctx.places, saved, strict=True):
            arguments[i] = tensor
        needed = dict(zip(names, ctx.needs_input_grad, strict=False))
        bias_grad = needed.get("bias", False)
        found = backward(
            torch.zeros_like(out) if dout is None else dout,
            None if dlse is None else dlse.contiguous(),
            out,
            lse,
            bias_grad,
            *arguments[: len(names) - 1],
            *arguments[len(names) :],
        )
        gradients = dict(zip(wanted(arguments, bias_grad), found, strict=True))
        behind = [""] * (len(arguments) - len(names))
        return tuple(gradients.get(name) for name in (*names, *behind)[: len(arguments)])

    def wanted(arguments: Sequence[Any], bias_grad: bool) -> dict[str, torch.Tensor]:
        given = dict(zip(names, arguments, strict=False))
        some = DIFFERENTIABLE if bias_grad else DIFFERENTIABLE[:-1]
        return {name: given[name] for name in some if given.get(name) is not None}

    return autograd.differentiable(forward, differentiate, remember)


# In the order of gradients.launch.
DIFFERENTIABLE = ("q", "k", "v", "sinks", "bias")

differentiate = autograd.differentiable_once(flash_attention_backward_op, "flash_attention")
attend = differentiable(flash_attention_op, differentiate, leading=7)


def like(*arguments: torch.Tensor | None) -> list[torch.Tensor]:
    """Gradients without values of those that are there."""
    return [
        torch.empty_like(one, memory_format=torch.contiguous_format)
        for one in arguments
        if one is not None
    ]


@flash_attention_backward_op.register_fake
def _gradients(
    dout: Any, dlse: Any, out: Any, lse: Any, bias_grad: bool, *arguments: Any
) -> list[torch.Tensor]:
    options = dict(zip(NAMES, arguments[7:], strict=False))
    bias = options.get("bias") if bias_grad else None
    return like(*arguments[:3], options.get("sinks"), bias)


def flash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,
    causal_offset: int,
    left_offset: int | None,
    scale: float,
    *options: Any,
    return_lse: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, log-sum-exp, which only ``return_lse`` asks for): the operator where torch has to know
    of it, else the launch itself, which saves the dispatcher's time on the host. ``options`` as
    ``Options`` takes them."""
    mask, given = (causal, causal_offset, left_offset), (q, k, v, *options)
    if autograd.asked(given) or checks.traced(*given):
        out, lse, _ = attend(q, k, v, *mask, scale, *options, return_lse)
        return out, lse
    problem = Problem(q, k, v, Mask(*mask), scale, None, Options(*options))
    return _forward(problem, exact_gradients=False, return_lse=True)[:2]
