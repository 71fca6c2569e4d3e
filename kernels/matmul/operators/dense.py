"""Matmul as an operator torch knows: fake tensors, autograd, torch.compile."""

from __future__ import annotations

from typing import Any

import torch

from kernels.matmul.common import tuning as configs
from kernels.matmul.common.product import Product
from kernels.matmul.portable import kernel as portable
from kernels.matmul.portable import one_row
from kernels.runtime import autograd, backends, targets
from kernels.runtime.launch import prepared


def _launch(product: Product, allow_tf32: bool) -> None:
    with targets.on_device_of(product.a, "a"):
        row = configs.choose_one_row(targets.current(), product.a, product.b)
        if row is not None:
            return one_row.launch(product, row)
        in_tf32 = allow_tf32 and product.a.dtype == torch.float32
        if not backends.specialised(
            "matmul.hopper.tf32.launch" if in_tf32 else "matmul.hopper.launch",
            lambda hopper: hopper.supported(product),
            lambda hopper: hopper.launch(product),
        ):
            portable.launch(product, allow_tf32)


@prepared
def into(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    allow_tf32: bool,
    residual: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    """Write ``activation(a @ b + bias) + residual`` for checked arguments."""
    if out.numel():
        _launch(Product(a, b, out, bias, activation, residual), allow_tf32)


matmul_into_op = torch.library.custom_op("warpwatch::matmul_into", into, mutates_args=("out",))
matmul_into_op.register_fake(lambda *_: None)


@torch.library.custom_op("warpwatch::matmul", mutates_args=())
@prepared
def matmul_op(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    allow_tf32: bool,
    residual: torch.Tensor | None,
) -> torch.Tensor:
    out = _output(a, b)
    into(a, b, bias, activation, allow_tf32, residual, out)
    return out


@matmul_op.register_fake
def _output(a: torch.Tensor, b: torch.Tensor, *_: Any) -> torch.Tensor:
    return torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    a, b, bias, ctx.activation, ctx.allow_tf32, residual = inputs
    # The output tells where relu passed, unless a residual was added to it.
    tells = ctx.activation == "relu" and residual is None
    ctx.save_for_backward(a, b, bias, output if tells else None)


def _through(activation: str, dout: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """The gradient of what the activation was applied to."""
    aten = torch.ops.aten
    if activation == "relu":
        gradient = aten.threshold_backward(dout, before, 0)
    elif activation == "gelu":
        gradient = aten.gelu_backward(dout, before)
    elif torch.is_grad_enabled():  # a second gradient is asked for, and silu_backward has none
        x = before.float()
        gate = torch.sigmoid(x)
        gradient = (dout.float() * gate * (1 + x * (1 - gate))).to(dout.dtype)
    else:
        gradient = aten.silu_backward(dout, before)
    assert isinstance(gradient, torch.Tensor)
    return gradient


def _differentiate(ctx: Any, dout: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    a, b, bias, out = ctx.saved_tensors
    dresidual = dout if ctx.needs_input_grad[5] else None
    if ctx.activation is not None:
        # Without relu's output, what the activation was applied to is computed again.
        before = out if out is not None else multiply(a, b, bias, None, ctx.allow_tf32, None)
        dout = _through(ctx.activation, dout, before)
    needs_a, needs_b, needs_bias = ctx.needs_input_grad[:3]
    da = multiply(dout, b.t(), None, None, ctx.allow_tf32, None) if needs_a else None
    db = multiply(a.t(), dout, None, None, ctx.allow_tf32, None) if needs_b else None
    dbias = dout.sum(0) if bias is not None and needs_bias else None
    return da, db, dbias, None, None, dresidual


multiply = autograd.differentiable(matmul_op, _differentiate, _remember)
