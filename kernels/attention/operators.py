"""Attention as operators torch knows: fake tensors, autograd, torch.compile."""

from __future__ import annotations

from typing import Any

import torch

from .. import specialised, targets
from . import backward, forward


@torch.library.custom_op("warpwatch::flash_attention", mutates_args=())
def flash_attention_op(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,
    causal_offset: int,
    left_offset: int | None,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, log-sum-exp) for checked arguments of layout (batch, seqlen, heads, head_dim)."""
    return _forward(q, k, v, causal, causal_offset, left_offset, scale)


def _forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,
    causal_offset: int,
    left_offset: int | None,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    out, lse = _outputs(q, k, v)
    if out.numel():
        _launch(
            q,
            k,
            v,
            out,
            lse,
            causal=causal,
            causal_offset=causal_offset,
            left_offset=left_offset,
            scale=scale,
        )
    return out, lse


def _launch(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    *,
    left_offset: int | None,
    scale: float,
    **options: Any,
) -> None:
    """The kernel of this architecture where there is one and it takes the problem."""
    with targets.on_device_of(q):
        hopper = specialised.load("attention.hopper") if targets.current().has_wgmma else None
        alike = left_offset is None and v.shape[3] == q.shape[3]
        if hopper is not None and alike and hopper.supported(q, k, v, scale):
            try:
                return hopper.launch(q, k, v, out, lse, scale=scale, **options)
            except specialised.COMPILE_ERRORS as error:
                specialised.give_up("attention.hopper", error)
        forward.launch(q, k, v, out, lse, left_offset=left_offset, scale=scale, **options)


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
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    causal: bool,
    causal_offset: int,
    left_offset: int | None,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return backward.launch(
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
    )


@flash_attention_backward_op.register_fake
def _gradients(
    dout: torch.Tensor,
    dlse: torch.Tensor | None,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *_: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    dq, dk, dv = (torch.empty_like(one, memory_format=torch.contiguous_format) for one in (q, k, v))
    return dq, dk, dv


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    q, k, v, ctx.causal, ctx.causal_offset, ctx.left_offset, ctx.scale = inputs
    ctx.save_for_backward(q, k, v, *output)
    ctx.set_materialize_grads(False)


def _differentiate(
    ctx: Any, dout: torch.Tensor | None, dlse: torch.Tensor | None
) -> tuple[torch.Tensor | None, ...]:
    q, k, v, out, lse = ctx.saved_tensors
    if dout is None:
        dout = torch.zeros_like(out)
    gradients = flash_attention_backward_op(
        dout,
        None if dlse is None else dlse.contiguous(),
        q,
        k,
        v,
        out,
        lse,
        ctx.causal,
        ctx.causal_offset,
        ctx.left_offset,
        ctx.scale,
    )
    return (*gradients, None, None, None, None)


flash_attention_op.register_autograd(_differentiate, setup_context=_remember)


def flash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,
    causal_offset: int,
    left_offset: int | None,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, log-sum-exp): the operator where torch has to know of it, else the launch itself,
    which saves the dispatcher's time on the host."""
    differentiable = torch.is_grad_enabled() and (
        q.requires_grad or k.requires_grad or v.requires_grad
    )
    if differentiable or torch.compiler.is_compiling() or type(q) is not torch.Tensor:
        return flash_attention_op(q, k, v, causal, causal_offset, left_offset, scale)
    return _forward(q, k, v, causal, causal_offset, left_offset, scale)
