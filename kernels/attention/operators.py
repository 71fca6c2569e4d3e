"""Attention as operators torch knows: fake tensors, autograd, torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import checks, specialised, targets, transforms
from . import few_queries, forward, gradients
from .options import NAMES, Options
from .packed import Packed


@torch.library.custom_op("warpwatch::flash_attention", mutates_args=())
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
    exact_gradients: bool = False,
    bias: torch.Tensor | None = None,
    block_mask: torch.Tensor | None = None,
    block_rows: int | None = None,
    block_columns: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, log-sum-exp) for checked arguments of layout (batch, seqlen, heads, head_dim)."""
    blocks = (block_mask, block_rows, block_columns)
    options = (softcap, slopes, sinks, dropout, seed, exact_gradients, bias, *blocks)
    return _forward(q, k, v, causal, causal_offset, left_offset, scale, *options)


def _forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,
    causal_offset: int,
    left_offset: int | None,
    scale: float,
    *options: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    out, lse = _outputs(q, k, v)
    if out.numel():
        launch(
            q,
            k,
            v,
            out,
            lse,
            Options(*options),
            causal=causal,
            causal_offset=causal_offset,
            left_offset=left_offset,
            scale=scale,
        )
    return out, lse


def launch(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    options: Options,
    *,
    scale: float,
    packed: Packed | None = None,
    **mask: Any,
) -> None:
    """The kernel of this architecture where there is one and it takes the problem."""
    with targets.on_device_of(q, "q"):
        few = packed is None and options.plain
        if few and few_queries.supported(q, k, scale, mask["left_offset"]):
            return few_queries.launch(q, k, v, out, lse, scale=scale, **mask)
        hopper = specialised.load("attention.hopper") if targets.current().has_wgmma else None
        alike = v.shape[3] == q.shape[3] and options.plain
        given: dict[str, Any] = {"scale": scale, "packed": packed, **mask}
        if (
            hopper is not None
            and alike
            and hopper.supported(q, k, v, **given)
            and specialised.serves("attention.hopper", hopper.launch, q, k, v, out, lse, **given)
        ):
            return
        forward.launch(q, k, v, out, lse, options=options, **given)


@flash_attention_op.register_fake
def _outputs(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    batch, seqlen_q, heads = q.shape[:3]
    out = torch.empty((batch, seqlen_q, heads, v.shape[3]), dtype=q.dtype, device=q.device)
    lse = torch.empty((batch, heads, seqlen_q), dtype=torch.float32, device=q.device)
    return out, lse


@torch.library.custom_op("warpwatch::flash_attention_backward", mutates_args=())
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
    return gradients.launch(
        dout,
        dlse,
        q,
        k,
        v,
        out,
        lse,
        causal=causal,
        causal_offset=causal_offset,
        left_offset=left_offset,
        scale=scale,
        options=Options(
            softcap,
            slopes,
            sinks,
            dropout,
            seed,
            exact_gradients,
            bias,
            block_mask,
            block_rows,
            block_columns,
        ),
        bias_grad=bias_grad,
    )


def differentiable(operator: Any, backward: Callable[..., Any], leading: int) -> Callable[..., Any]:
    """Give ``operator`` its gradients: ``backward`` takes (dout, dlse, out, lse, whether the bias
    needs one) and the same arguments: q, k, v, others up to ``leading``, those of ``Options``.
    What comes back calls it."""
    names = ("q", "k", "v", *[""] * (leading - 3), *NAMES)

    def remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        ctx.arguments = [None if isinstance(one, torch.Tensor) else one for one in inputs]
        ctx.places = [i for i, one in enumerate(inputs) if isinstance(one, torch.Tensor)]
        ctx.save_for_backward(*output, *(inputs[i] for i in ctx.places))
        ctx.set_materialize_grads(False)

    def differentiate(ctx: Any, dout: Any, dlse: Any) -> tuple[torch.Tensor | None, ...]:
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
            *arguments,
        )
        gradients = dict(zip(wanted(arguments, bias_grad), found, strict=True))
        return tuple(gradients.get(name) for name in names[: len(arguments)])

    def wanted(arguments: Sequence[Any], bias_grad: bool) -> dict[str, torch.Tensor]:
        given = dict(zip(names, arguments, strict=False))
        some = DIFFERENTIABLE if bias_grad else DIFFERENTIABLE[:-1]
        return {name: given[name] for name in some if given.get(name) is not None}

    return transforms.differentiable(operator, differentiate, remember)


# In the order of gradients.launch.
DIFFERENTIABLE = ("q", "k", "v", "sinks", "bias")

differentiate = transforms.differentiable_once(flash_attention_backward_op, "flash_attention")
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
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, log-sum-exp): the operator where torch has to know of it, else the launch itself,
    which saves the dispatcher's time on the host. ``options`` as ``Options`` takes them."""
    needs_grad = torch.is_grad_enabled() and any(
        isinstance(one, torch.Tensor) and one.requires_grad for one in (q, k, v, *options)
    )
    if needs_grad or checks.traced(q, k, v, *options):
        return attend(q, k, v, causal, causal_offset, left_offset, scale, *options)
    return _forward(q, k, v, causal, causal_offset, left_offset, scale, *options)
