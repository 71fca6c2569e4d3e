"""The public matmul: what it accepts and which kernel runs it."""

from __future__ import annotations

from typing import Any

import torch

from kernels.matmul.operators import dense as operators
from kernels.matmul.operators import fp8 as fp8_interface
from kernels.runtime import autocast, checks
from kernels.runtime.launch import prepared

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
ACTIVATIONS = ("relu", "gelu", "silu")


@prepared
def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    residual: torch.Tensor | None = None,
    a_scale: torch.Tensor | None = None,
    b_scale: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    allow_tf32: bool = False,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """``activation(a @ b + bias) + residual``, accumulated in fp32 and rounded once.

    One launch. Two where few rows leave K to be split, with a workspace of at most a quarter of b's
    bytes; on Hopper also where tiles are few, with at most 32 KB a multiprocessor. Two in tf32 on
    Hopper from 512 rows on, with a copy like b. A scale of which 2^31 elements or more lie between
    the first and the last is copied first.

    Differentiable without ``out``. With gelu or silu, or relu and a residual, the backward pass
    multiplies a and b once more instead of keeping the product. fp8 runs forward only; a target
    whose matrix unit lacks the flavour decodes it to fp16.

    Args:
        a: (M, K), fp16, bf16, fp32, float8_e4m3fn or float8_e4m3fnuz, with any strides: a
            transposed view costs no copy.
        b: (K, N), of a's dtype, with any strides.
        bias: (N,), stride 1, of the output's dtype.
        activation: "relu", "gelu" (exact), "silu" or None.
        residual: (M, N), of the output's dtype, with any strides, an expanded view among them. It
            is added before the result is rounded.
        a_scale: Of fp8 only, fp32: one for the tensor, (M,) for rows, or (M, ceil(K / 128)) for
            blocks of 1 x 128. a is multiplied by it.
        b_scale: Of fp8 only, fp32: one, (N,) for columns, or (ceil(K / 128), ceil(N / 128)) for
            blocks of 128 x 128. b is multiplied by it.
        out_dtype: Of fp8 only: bf16 (the default), fp16 or fp32.
        allow_tf32: Round fp32 inputs to tf32 where the matrix unit has it.
        out: (M, N), of the output's dtype, written in place. It may be ``residual`` itself, and no
            other operand.

    Returns:
        (M, N), of a's dtype, of fp8 of ``out_dtype``; ``out`` if given. Under ``torch.autocast`` a,
        b, bias and residual are cast to its dtype first, unless ``out`` is given or a and b are
        fp8.

    Raises:
        TypeError: An argument is no tensor.
        ValueError: A shape, dtype, device or stride does not fit, or ``out`` shares memory.
        NotImplementedError: A gradient is needed of fp8 operands or with ``out``.

    Examples:
        >>> import torch
        >>> from kernels import matmul
        >>> a, b = torch.randn(64, 32), torch.randn(32, 48)
        >>> out = matmul(a, b, bias=torch.ones(48), activation="relu")
        >>> torch.allclose(out, torch.relu(a @ b + 1), atol=1e-4)
        True
    """
    in_fp8 = isinstance(a, torch.Tensor) and a.dtype in fp8_interface.DTYPES
    if out is None and not in_fp8:
        a, b, bias, residual = autocast.lowered(a, b, bias, residual)
    kind = _check(a, b, a_scale, b_scale, out_dtype)
    _check_epilogue(kind, a, b, bias, activation, residual)
    given = {"a": a, "b": b, "a_scale": a_scale, "b_scale": b_scale}
    given |= {"bias": bias, "residual": residual, "out": out}
    checks.no_tangent(**given)
    if out is not None:
        _check_shaped("out", out, kind, a, b)
        checks.writable("out", out)
        checks.apart("out", out, in_place="residual", a=a, b=b, bias=bias, residual=residual)
    wanting = [name for name, one in given.items() if one is not None and one.requires_grad]
    differentiable = wanting and torch.is_grad_enabled()
    if differentiable and in_fp8:
        name = wanting[0]
        raise NotImplementedError(
            f"{name}: expected no gradient to be requested, fp8 products have none, got a tensor "
            f"that requires it; pass {name}.detach(), or call under torch.no_grad()"
        )
    if differentiable and out is not None:
        raise NotImplementedError(
            "out: expected None where a gradient is requested, got a tensor; drop it, or call "
            "under torch.no_grad()"
        )
    allow_tf32 = checks.flag("allow_tf32", allow_tf32)
    checks.launchable("a", a)
    traced = checks.traced(*given.values())
    low = (a, b, a_scale, b_scale, bias, activation, residual)
    high = (a, b, bias, activation, allow_tf32, residual)
    run: Any
    if out is None:
        run = fp8_interface.matmul_fp8_op if traced else fp8_interface.multiply
        product: torch.Tensor = run(*low, kind) if in_fp8 else operators.multiply(*high)
        return product
    if not traced:
        checks.written(out)
    if in_fp8:
        run = fp8_interface.matmul_fp8_into_op if traced else fp8_interface.into
    else:
        run = operators.matmul_into_op if traced else operators.into
    run(*(low if in_fp8 else high), out)
    return out


def _check(a: Any, b: Any, a_scale: Any, b_scale: Any, out_dtype: Any) -> torch.dtype:
    """The dtype of the output, and of all that is added to it."""
    checks.tensor("a", a, rank=2, layout="(M, K)")
    checks.tensor("b", b, rank=2, layout="(K, N)")
    checks.dtype("a", a, DTYPES + fp8_interface.DTYPES)
    checks.same_dtype_and_device("a", a, b=b)
    if a.shape[1] != b.shape[0]:
        raise ValueError(
            f"b: expected {a.shape[1]} rows, the columns of a with shape {tuple(a.shape)}, got "
            f"shape {tuple(b.shape)}; did you mean b.t()?"
        )
    return fp8_interface.checked_dtype(a, b, a_scale, b_scale, out_dtype)


def _check_epilogue(
    kind: torch.dtype, a: torch.Tensor, b: torch.Tensor, bias: Any, activation: Any, residual: Any
) -> None:
    if bias is not None:
        checks.tensor("bias", bias, rank=1, layout="(N,)")
        _check_like_the_output("bias", bias, kind, a)
        if bias.shape[0] != b.shape[1]:
            raise ValueError(
                f"bias: expected {b.shape[1]} values, the columns of b, got {bias.shape[0]}"
            )
        if not bias.is_contiguous():  # of one value any stride is
            raise ValueError(
                f"bias: expected stride 1, got {bias.stride(0)}; pass bias.contiguous()"
            )
    if activation is not None and activation not in ACTIVATIONS:
        raise ValueError(
            f"activation: expected one of {', '.join(ACTIVATIONS)} or None, got {activation!r}"
        )
    if residual is not None:
        _check_shaped("residual", residual, kind, a, b)


def _check_like_the_output(name: str, value: torch.Tensor, kind: Any, a: torch.Tensor) -> None:
    if kind == a.dtype:
        checks.same_dtype_and_device("a", a, **{name: value})
        return
    if value.dtype != kind:
        raise ValueError(
            f"{name}: expected the output's dtype {kind}, got {value.dtype}; convert it, or set "
            "out_dtype"
        )
    checks.same_device("a", a, **{name: value})


def _check_shaped(name: str, value: Any, kind: Any, a: torch.Tensor, b: torch.Tensor) -> None:
    """``value`` is like the product of a and b."""
    shape = (a.shape[0], b.shape[1])
    checks.tensor(name, value, rank=2, layout="(M, N)")
    _check_like_the_output(name, value, kind, a)
    if tuple(value.shape) != shape:
        raise ValueError(f"{name}: expected shape {shape}, got {tuple(value.shape)}")
