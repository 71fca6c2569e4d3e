"""grouped_matmul: what it accepts, and its operators for torch."""

from __future__ import annotations

from typing import Any

import torch

from kernels.matmul.portable import grouped
from kernels.runtime import autocast, autograd, checks
from kernels.runtime.launch import prepared

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@prepared
def grouped_matmul(a: torch.Tensor, b: torch.Tensor, group_offsets: torch.Tensor) -> torch.Tensor:
    """Multiply rows, sorted by group, by their group's matrix, as a mixture of experts does.

    One launch, which does not wait for the GPU. The entries of ``group_offsets`` are not checked
    for the same reason. No row outside of a is touched, whatever the entries are. Portable kernels
    serve on every target.

    Args:
        a: (total, K), fp16, bf16 or fp32, with any strides.
        b: (groups, K, N), of a's dtype, with any strides.
        group_offsets: int32 (groups + 1,), stride 1, from 0 up to at most total: group g owns the
            rows from entry g up to entry g + 1, and may be empty.

    Returns:
        (total, N), of a's dtype, accumulated in fp32. Rows after the last entry are 0, and so are
        their gradients. Differentiable in a and b, twice, with the same bits at every run. Under
        ``torch.autocast`` a and b are cast to its dtype first.

    Raises:
        TypeError: An argument is no tensor.
        ValueError: A shape, dtype or device does not fit.
        NotImplementedError: Forward-mode differentiation.

    Examples:
        >>> import torch
        >>> from kernels import grouped_matmul
        >>> a, b = torch.randn(48, 32), torch.randn(2, 32, 16)
        >>> out = grouped_matmul(a, b, torch.tensor([0, 16, 48], dtype=torch.int32))
        >>> torch.allclose(out[:16], a[:16] @ b[0], atol=1e-4)
        True
    """
    a, b = autocast.lowered(a, b)
    _check(a, b, group_offsets)
    checks.no_tangent(a=a, b=b)
    checks.launchable("a", a)
    product: torch.Tensor = multiply(a, b, group_offsets)
    return product


def _check(a: Any, b: Any, offsets: Any) -> None:
    checks.tensor("a", a, rank=2, layout="(total, K)")
    checks.tensor("b", b, rank=3, layout="(groups, K, N)")
    checks.dtype("a", a, DTYPES)
    checks.same_dtype_and_device("a", a, b=b)
    if a.shape[1] != b.shape[1]:
        raise ValueError(
            f"b: expected {a.shape[1]} rows a group, the columns of a with shape "
            f"{tuple(a.shape)}, got shape {tuple(b.shape)}; did you mean b.transpose(1, 2)?"
        )
    checks.integers("group_offsets", offsets, rank=1, layout="(groups + 1,)", a=a)
    if offsets.shape[0] != b.shape[0] + 1:
        raise ValueError(
            f"group_offsets: expected {b.shape[0] + 1} entries, one more than b has groups, got "
            f"{offsets.shape[0]}; start it with 0"
        )
    if offsets.stride(0) != 1 and offsets.numel() > 1:
        raise ValueError(
            f"group_offsets: expected stride 1, got {offsets.stride(0)}; pass "
            "group_offsets.contiguous()"
        )


@torch.library.custom_op("warpwatch::grouped_matmul", mutates_args=())
@prepared
def grouped_matmul_op(a: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    out = _product(a, b, offsets)
    if not b.shape[0]:
        return out.zero_()
    return grouped.launch(a, b, offsets, out) if out.numel() else out


@grouped_matmul_op.register_fake
def _product(a: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    return torch.empty((a.shape[0], b.shape[2]), dtype=a.dtype, device=a.device)


@torch.library.custom_op("warpwatch::grouped_matmul_weights", mutates_args=())
@prepared
def grouped_weights_op(a: torch.Tensor, dout: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """(groups, K, N): ``a.T @ dout`` of each group's rows."""
    out = _weights(a, dout, offsets)
    return grouped.launch_weights(a, dout, offsets, out) if out.numel() else out


@grouped_weights_op.register_fake
def _weights(a: torch.Tensor, dout: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    shape = (offsets.shape[0] - 1, a.shape[1], dout.shape[1])
    return torch.empty(shape, dtype=a.dtype, device=a.device)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _differentiate(ctx: Any, dout: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    a, b, offsets = ctx.saved_tensors
    needs_a, needs_b = ctx.needs_input_grad[:2]
    da = multiply(dout, b.transpose(1, 2), offsets) if needs_a else None
    db = weigh(a, dout, offsets) if needs_b else None
    return da, db, None


def _differentiate_weights(ctx: Any, dweights: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    a, dout, offsets = ctx.saved_tensors
    needs_a, needs_dout = ctx.needs_input_grad[:2]
    da = multiply(dout, dweights.transpose(1, 2), offsets) if needs_a else None
    ddout = multiply(a, dweights, offsets) if needs_dout else None
    return da, ddout, None


multiply = autograd.differentiable(grouped_matmul_op, _differentiate, _remember)
weigh = autograd.differentiable(grouped_weights_op, _differentiate_weights, _remember)
