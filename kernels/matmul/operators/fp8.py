"""matmul of fp8 operands: which scales it takes, and its operator for torch."""

from __future__ import annotations

from typing import Any

import torch

from kernels.matmul.common.product import Product, Scale
from kernels.matmul.portable import kernel as portable
from kernels.runtime import backends, checks, targets
from kernels.runtime.addressing import near
from kernels.runtime.launch import prepared

DTYPES = (torch.float8_e4m3fn, torch.float8_e4m3fnuz)
OUT_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
BLOCK = 128


TAKES = (
    "Tensor a, Tensor b, Tensor? a_scale, Tensor? b_scale, Tensor? bias, str? activation, "
    "Tensor? residual"
)


@prepared
def into(a: torch.Tensor, b: torch.Tensor, *arguments: Any) -> None:
    """Write ``activation((a * a_scale) @ (b * b_scale) + bias) + residual`` for checked arguments:
    by the kernel of this architecture where there is one and it takes the problem."""
    a_scale, b_scale, bias, activation, residual, out = arguments
    if not out.numel():
        return
    scales = _scale("a_scale", a, near(a_scale)), _scale("b_scale", b, near(b_scale))
    product = Product(a, b, out, bias, activation, residual, *scales)
    with targets.on_device_of(a, "a"):
        if not backends.specialised("matmul.hopper.fp8.launch", product):
            portable.launch(product)


matmul_fp8_into_op = torch.library.custom_op(
    "warpwatch::matmul_fp8_into",
    into,
    mutates_args=("out",),
    schema=f"({TAKES}, Tensor(a7!) out) -> ()",
)
matmul_fp8_into_op.register_fake(lambda *_: None)


@prepared
def multiply(a: torch.Tensor, b: torch.Tensor, *arguments: Any) -> torch.Tensor:
    *given, out_dtype = arguments
    out = _output(a, b, out_dtype)
    into(a, b, *given, out)
    return out


matmul_fp8_op = torch.library.custom_op(
    "warpwatch::matmul_fp8",
    multiply,
    mutates_args=(),
    schema=f"({TAKES}, ScalarType out_dtype) -> Tensor",
)


@matmul_fp8_op.register_fake
def _output(a: torch.Tensor, b: torch.Tensor, *rest: Any) -> torch.Tensor:
    return torch.empty((a.shape[0], b.shape[1]), dtype=rest[-1], device=a.device)


def checked_dtype(
    a: torch.Tensor, b: torch.Tensor, a_scale: Any, b_scale: Any, out_dtype: Any
) -> torch.dtype:
    """The output's dtype, after the arguments that only fp8 operands take."""
    if a.dtype not in DTYPES:
        given = {"a_scale": a_scale, "b_scale": b_scale, "out_dtype": out_dtype}
        for name, value in given.items():
            if value is not None:
                raise ValueError(
                    f"{name}: expected None where a is no fp8 tensor, got a of {a.dtype}; convert "
                    f"a and b to torch.float8_e4m3fn, or drop {name}"
                )
        return a.dtype
    if out_dtype is not None and out_dtype not in OUT_DTYPES:
        raise ValueError(
            f"out_dtype: expected torch.bfloat16, torch.float16 or torch.float32, got {out_dtype}"
        )
    for name, operand, scale in (("a_scale", a, a_scale), ("b_scale", b, b_scale)):
        if scale is not None:
            if not isinstance(scale, torch.Tensor):
                raise TypeError(
                    f"{name}: expected a torch.Tensor of fp32 scales, got {type(scale).__name__}; "
                    f"wrap a number in torch.tensor(..., device=a.device)"
                )
            checks.dense(name, scale)
            checks.dtype(name, scale, (torch.float32,))
            checks.same_device("a", a, **{name: scale})
            _scale(name, operand, scale)
    return torch.bfloat16 if out_dtype is None else out_dtype


def _blocks(size: int) -> int:
    return -(-size // BLOCK)


def _scale(name: str, operand: torch.Tensor, scale: torch.Tensor | None) -> Scale:
    """Scales of a or b by ``name``: of the tensor, of rows of a or columns of b, or of blocks."""
    if scale is None:
        return Scale()
    of_a, (rows, columns) = name == "a_scale", operand.shape
    each = rows if of_a else columns
    blocks = (rows if of_a else _blocks(rows), _blocks(columns))
    if checks.shaped(scale, (), (1,), (1, 1)):
        return Scale(scale, (0, 0))
    if checks.shaped(scale, (each,), (rows, 1) if of_a else (1, columns)):
        return Scale(scale, (scale.stride(0), 0) if of_a else (0, scale.stride(-1)))
    if tuple(scale.shape) == blocks:
        return Scale(scale, (scale.stride(0), scale.stride(1)), blocks=True)
    raise ValueError(
        f"{name}: expected shape () for the tensor, ({each},) for {'rows' if of_a else 'columns'} "
        f"or ({blocks[0]}, {blocks[1]}) for blocks of {1 if of_a else BLOCK} x {BLOCK}, as "
        f"{name[0]} has shape {(rows, columns)}; got {tuple(scale.shape)}"
    )
