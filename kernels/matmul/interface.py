"""The public matmul: what it accepts and which kernel runs it."""

from __future__ import annotations

from typing import Any

import torch

from .. import autocast, checks
from . import operators

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
ACTIVATIONS = ("relu", "gelu", "silu")


def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    residual: torch.Tensor | None = None,
    allow_tf32: bool = False,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """``activation(a @ b + bias) + residual`` in one launch, accumulated in fp32.

    a: (M, K), b: (K, N) of one dtype, fp16, bf16 or fp32, with any strides: a transposed view
    costs no copy. bias: (N,). activation: relu, gelu (exact) or silu. residual: (M, N) with any
    strides, an expanded view among them; it is added before the result is rounded. ``allow_tf32``
    lets fp32 inputs be rounded to tf32 where the matrix unit has it. ``out``: (M, N), written in
    place; it may be ``residual`` itself.

    Differentiable without ``out``; with gelu or silu, or relu and a residual, the backward pass
    multiplies a and b once more instead of keeping the product. Under ``torch.autocast`` a, b, bias
    and residual are cast to its dtype first, unless ``out`` is given.
    """
    if out is None:
        a, b, bias, residual = autocast.lowered(a, b, bias, residual)
    _check(a, b, bias, activation, residual)
    if out is not None:
        _check_shaped("out", out, a, b)
    differentiable = torch.is_grad_enabled() and any(
        one is not None and one.requires_grad for one in (a, b, bias, residual)
    )
    if differentiable and out is not None:
        raise NotImplementedError(
            "out: expected None where a gradient is asked for, got a tensor; drop it, or call "
            "under torch.no_grad()"
        )
    checks.launchable("a", a)
    if out is None and (differentiable or torch.compiler.is_compiling()):
        return operators.matmul_op(a, b, bias, activation, allow_tf32, residual)
    return operators.product(a, b, bias, activation, allow_tf32, residual, out)


def _check(a: Any, b: Any, bias: Any, activation: Any, residual: Any) -> None:
    checks.tensor("a", a, rank=2, layout="(M, K)")
    checks.tensor("b", b, rank=2, layout="(K, N)")
    checks.dtype("a", a, DTYPES)
    checks.same_dtype_and_device("a", a, b=b)
    if a.shape[1] != b.shape[0]:
        raise ValueError(
            f"b: expected {a.shape[1]} rows, the columns of a with shape {tuple(a.shape)}, got "
            f"shape {tuple(b.shape)}; did you mean b.t()?"
        )
    if bias is not None:
        checks.tensor("bias", bias, rank=1, layout="(N,)")
        checks.same_dtype_and_device("a", a, bias=bias)
        if bias.shape[0] != b.shape[1]:
            raise ValueError(
                f"bias: expected {b.shape[1]} values, the columns of b, got {bias.shape[0]}"
            )
        if bias.stride(0) != 1:
            raise ValueError(
                f"bias: expected stride 1, got {bias.stride(0)}; pass bias.contiguous()"
            )
    if activation is not None and activation not in ACTIVATIONS:
        raise ValueError(
            f"activation: expected one of {', '.join(ACTIVATIONS)} or None, got {activation!r}"
        )
    if residual is not None:
        _check_shaped("residual", residual, a, b)


def _check_shaped(name: str, value: Any, a: torch.Tensor, b: torch.Tensor) -> None:
    """``value`` is like the product of a and b."""
    shape = (a.shape[0], b.shape[1])
    checks.tensor(name, value, rank=2, layout="(M, N)")
    checks.same_dtype_and_device("a", a, **{name: value})
    if tuple(value.shape) != shape:
        raise ValueError(f"{name}: expected shape {shape}, got {tuple(value.shape)}")
