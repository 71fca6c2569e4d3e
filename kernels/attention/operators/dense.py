"""Attention as operators torch knows: fake tensors, autograd, torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kernels.attention.common.options import NAMES, Options
from kernels.attention.common.problem import Given, Mask, Problem
from kernels.attention.dispatch import backward as gradients
from kernels.attention.dispatch.forward import launch
from kernels.runtime import autograd, checks
from kernels.runtime.launch import prepared

from .outputs import with_marks


@torch.library.custom_op("warpwatch::flash_attention", mutates_args=())
@prepared
def flash_attention_op(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,
    causal_offset: int,
    left_offset: int | None,
    scale: float,
    softcap: float | None = None,
    slopes: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    dropout: float | None = None,
    seed: torch.Tensor | None = None,
    exact_gradients: bool = True,
    bias: torch.Tensor | None = None,
    block_mask: torch.Tensor | None = None,
    block_rows: int | None = None,
    block_columns: int | None = None,
    return_lse: bool = True,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(out, log-sum-exp, another one with marks) for checked arguments of layout (batch, seqlen,
    heads, head_dim). The last is for ``exact_gradients`` of 16 bits
    (common/numerics/heavy_rows.py), else it is without elements; so is the other where only the
    last is needed."""
    blocks = (block_mask, block_rows, block_columns)
    options = Options(softcap, slopes, sinks, dropout, seed, exact_gradients, bias, *blocks)
    problem = Problem(q, k, v, Mask(causal, causal_offset, left_offset), scale, None, options)
    return _forward(problem, exact_gradients=exact_gradients, return_lse=return_lse)


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


@flash_attention_op.register_fake
def _fake(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *arguments: Any, **named: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return with_marks(q, v, **asked(arguments[4:], named, NAMES))


def asked(
    arguments: Sequence[Any], named: Mapping[str, Any], names: Sequence[str]
) -> dict[str, bool]:
    """What outputs depend on, of what operators take after what is their own."""
    given = {**dict(zip((*names, "return_lse"), arguments, strict=False)), **named}
    return {name: given.get(name, True) for name in ("exact_gradients", "return_lse")}


@torch.library.custom_op("warpwatch::flash_attention_backward", mutates_args=())
@prepared
def flash_attention_backward_op(
    dout: torch.Tensor,
    dlse: torch.Tensor | None,
    out: torch.Tensor,
    lse: torch.Tensor,
    bias_grad: bool,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,
    causal_offset: int,
    left_offset: int | None,
    scale: float,
    softcap: float | None = None,
    slopes: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    dropout: float | None = None,
    seed: torch.Tensor | None = None,
    exact_gradients: bool = False,
    bias: torch.Tensor | None = None,
    block_mask: torch.Tensor | None = None,
    block_rows: int | None = None,
    block_columns: int | None = None,
) -> list[torch.Tensor]:
    """As ``gradients.launch`` returns them."""
    blocks = (block_mask, block_rows, block_columns)
    options = Options(softcap, slopes, sinks, dropout, seed, exact_gradients, bias, *blocks)
    problem = Problem(q, k, v, Mask(causal, causal_offset, left_offset), scale, None, options)
    return gradients.launch(problem, Given(dout, dlse, out, lse), bias_grad=bias_grad)


def differentiable(
    operator: Any, backward: Callable[..., Any], leading: int, options: Sequence[str] = NAMES
) -> Callable[..., Any]:
    """Give ``operator`` its gradients: ``backward`` takes (dout, dlse, out, lse, whether the bias
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

    return autograd.differentiable(operator, differentiate, remember)


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
    needs_grad = torch.is_grad_enabled() and any(
        isinstance(one, torch.Tensor) and one.requires_grad for one in (q, k, v, *options)
    )
    mask = (causal, causal_offset, left_offset)
    if needs_grad or checks.traced(q, k, v, *options):
        out, lse, _ = attend(q, k, v, *mask, scale, *options, return_lse)
        return out, lse
    problem = Problem(q, k, v, Mask(*mask), scale, None, Options(*options))
    return _forward(problem, exact_gradients=False, return_lse=True)[:2]
