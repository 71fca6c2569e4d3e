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

TAKES = "Tensor a, Tensor b, Tensor? bias, str? activation, bool allow_tf32, Tensor? residual"


@prepared
def into(a: torch.Tensor, b: torch.Tensor, *arguments: Any) -> None:
    """Write ``activation(a @ b + bias) + residual`` for checked arguments."""
    bias, activation, allow_tf32, residual, out = arguments
    if not out.numel():
        return
    product = Product(a, b, out, bias, activation, residual)
    with targets.on_device_of(a, "a"):
        row = configs.choose_one_row(targets.current(), a, b)
        if row is not None:
            return one_row.launch(product, row)
        in_tf32 = allow_tf32 and a.dtype == torch.float32
        name = "matmul.hopper.tf32.launch" if in_tf32 else "matmul.hopper.launch"
        if not backends.specialised(name, product):
            portable.launch(product, allow_tf32)


matmul_into_op = torch.library.custom_op(
    "warpwatch::matmul_into",
    into,
    mutates_args=("out",),
    schema=f"({TAKES}, Tensor(a6!) out) -> ()",
)
matmul_into_op.register_fake(lambda *_: None)


@prepared
def _product(a: torch.Tensor, b: torch.Tensor, *arguments: Any) -> torch.Tensor:
    out = _output(a, b)
    into(a, b, *arguments, out)
    return out


matmul_op = torch.library.custom_op(
    "warpwatch::matmul", _product, mutates_args=(), schema=f"({TAKES}) -> Tensor"
)


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
