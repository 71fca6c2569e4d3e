"""Products as Hopper's Gluon kernels compute them, interpreted.

What takes a case runs in a process in which Triton interprets and gives the errors of the output
against fp64, beside those of the plain formula in the same dtype. A product is written amid NaN
that must stay, and reads operands amid NaN that must not arrive.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import torch

from tests.kernels import test_matmul, test_matmul_fp8
from tests.kernels.interpreted import Errors, measure, numbers, strided

Forms = list[tuple[str, dict[str, Any]]]


@dataclass(frozen=True, kw_only=True)
class Case:
    """``a`` and ``b`` are stored in ``layout``, n as they are and t transposed, their rows ``pad``
    elements apart beyond whole 16 bytes, the first one ``begin`` elements behind the start of their
    memory. ``kernels``: of Gluon's, those that are launched, None for any. ``config``: instead of
    what a launch chooses. ``scales`` and ``out`` are of fp8 alone. ``whole``: of numbers so
    small and whole that products over a block of K are exact in any order."""

    M: int
    N: int
    K: int
    kernels: tuple[str, ...] | None = None
    dtype: str = "bfloat16"
    layout: str = "nn"
    pad: tuple[int, int] = (0, 0)
    begin: tuple[int, int] = (0, 0)
    bias: bool = False
    activation: str | None = None
    residual: str | None = None
    tf32: bool = False
    scales: tuple[str, str] = ("none", "none")
    out: str = "bfloat16"
    config: Any = None
    whole: bool = False
    multiprocessors: int = 4
    seed: int = field(default=0, compare=False)

    def __str__(self) -> str:
        parts = [*(self.kernels or ()), f"{self.M}x{self.N}x{self.K}", self.layout, self.dtype]
        parts += ["bias"] * self.bias + [self.activation or "linear"]
        parts += [self.residual] if self.residual else []
        parts += [*self.scales, self.out] if self.in_fp8 else []
        return "-".join([*parts, f"of{self.multiprocessors}"])

    @property
    def in_fp8(self) -> bool:
        return self.dtype.startswith("float8")


def placed(
    rows: int, columns: int, transposed: bool, pad: int, begin: int, dtype: torch.dtype, seed: int
) -> torch.Tensor:
    """(rows, columns) of random values amid NaN, its rows (columns, if ``transposed``) whole 16
    bytes apart and ``pad`` elements more."""
    if transposed:
        return placed(columns, rows, False, pad, begin, dtype, seed).t()
    values = strided((rows, columns), "contiguous", torch.float32, seed)
    if dtype == torch.float8_e4m3fn:
        values = (100.0 * values).clamp(-240.0, 240.0)
    whole = 16 // dtype.itemsize
    pitch = -(-columns // whole) * whole + pad
    room = _from_a_line_on(begin + rows * pitch, dtype).fill_(math.nan)
    found = room[begin:].view(rows, pitch)[:, :columns]
    found.copy_(values.to(dtype))
    return found


def _from_a_line_on(count: int, dtype: torch.dtype) -> torch.Tensor:
    """Memory that begins with a line, as that which torch allocates on a GPU does."""
    size = count * dtype.itemsize
    room = np.empty(size + 127, np.uint8)
    first = -room.ctypes.data % 128
    return torch.from_numpy(room[first : first + size]).view(dtype)


def result(case: Case, dtype: torch.dtype) -> torch.Tensor:
    """Where the product is written: whole 16 bytes from row to row, amid NaN."""
    whole = 16 // dtype.itemsize
    pitch = -(-case.N // whole) * whole + whole
    room = torch.full((case.M + 2, pitch), math.nan, dtype=dtype)
    return room[1:-1, : case.N]


def stayed(out: torch.Tensor) -> bool:
    """Whether what lies beside a ``result`` is still NaN."""
    whole = torch.empty(0, dtype=out.dtype).set_(out.untyped_storage()).view(-1, out.stride(0))
    return bool(
        whole[:, out.shape[1] :].isnan().all()
        and whole[0].isnan().all()
        and whole[-1].isnan().all()
    )


@contextmanager
def choosing(config: Any) -> Iterator[None]:
    """As a sweep does: ``config`` is what modules choose whose configurations are of its class."""
    from kernels.matmul.hopper import choose as hopper_choice
    from kernels.matmul.hopper import launch as hopper
    from kernels.matmul.hopper import unaligned
    from kernels.matmul.hopper.fp8 import launch as hopper_fp8
    from kernels.matmul.hopper.tf32 import launch as hopper_tf32

    with ExitStack() as stack:
        for module, name, kind in (
            (hopper, "choose", hopper_choice.HopperConfig),
            (hopper, "choose_added", hopper_choice.HopperConfig),
            (hopper_tf32, "choose", hopper_choice.HopperConfig),
            (unaligned, "choose", unaligned.LinesConfig),
            (hopper_fp8, "choose", hopper_fp8.Fp8HopperConfig),
            (hopper_fp8, "choose", hopper_choice.Fp8OnceConfig),
        ):
            if type(config) is kind:
                stack.enter_context(mock.patch.object(module, name, lambda *given, **named: config))
        yield


def _launched(case: Case, out: torch.Tensor, *given: torch.Tensor, **options: Any) -> Forms:
    """What writing the product took; its kernels are those that ``case`` names."""
    import kernels
    from tests.gluon.interpreter import hopper_on_the_cpu

    with hopper_on_the_cpu(case.multiprocessors, case.seed) as launches, choosing(case.config):
        kernels.matmul(*given, out=out, **options)
    found = tuple(launches.kernels)
    assert case.kernels in (None, found), f"expected {case.kernels}, got {found}"
    assert stayed(out), "what lies beside the output was written"
    return list(zip(launches.kernels, launches.named, strict=True))


def operands(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    kind = getattr(torch, case.dtype)
    shapes = ((case.M, case.K), (case.K, case.N))
    a, b = (
        placed(*shape, order == "t", pad, begin, kind, i + 1)
        for i, (shape, order, pad, begin) in enumerate(
            zip(shapes, case.layout, case.pad, case.begin, strict=True)
        )
    )
    if case.whole:
        for one in (a, b):
            one.copy_((one.float() / 50.0).round().to(kind))
    return a, b


def run(case: Case, draw: int = 0) -> tuple[Errors, Forms]:
    """Of operands that are no fp8, of numbers that are others for every ``draw``."""
    with numbers(draw):
        return _run(case)


def _run(case: Case) -> tuple[Errors, Forms]:
    kind = getattr(torch, case.dtype)
    a, b = operands(case)
    bias = strided((case.N,), "contiguous", kind, 3) if case.bias else None
    out = result(case, kind)
    residual = None
    if case.residual is not None:
        values = strided((case.M, case.N), "contiguous", kind, 4)
        residual = (out if case.residual == "in place" else result(case, kind)).copy_(values)

    def plain(kind: torch.dtype) -> torch.Tensor:
        x, y = a.to(kind), b.to(kind)
        if kind != torch.float64 and case.tf32:
            x, y = test_matmul.in_tf32(x), test_matmul.in_tf32(y)
        found = x @ y
        found = found if bias is None else found + bias.to(kind)
        if case.activation is not None:
            found = getattr(torch.nn.functional, case.activation)(found)
        return found if case.residual is None else found + values.to(kind)

    want = plain(kind), plain(torch.float64)
    options = {"bias": bias, "activation": case.activation, "residual": residual}
    forms = _launched(case, out, a, b, allow_tf32=case.tf32, **options)
    return measure(out, *want), forms


def run_fp8(case: Case) -> tuple[tuple[torch.Tensor, ...], Forms]:
    """Of operands in fp8: the output, the truth, and the bound of each value's error."""
    kind = getattr(torch, case.out)
    a, b = operands(case)
    a_scale, wide_a_scale = test_matmul_fp8.scales(case.scales[0], case.M, case.K, 5)
    b_scale, wide_b_scale = test_matmul_fp8.scales(case.scales[1], case.K, case.N, 6)
    bias = torch.randn(case.N).to(kind) if case.bias else None
    out = result(case, kind)
    options = {"bias": bias, "activation": case.activation, "out_dtype": kind}
    forms = _launched(case, out, a, b, a_scale=a_scale, b_scale=b_scale, **options)
    left, right = a.double() * wide_a_scale, b.double() * wide_b_scale
    want = test_matmul_fp8.judged(left, right, bias, case.activation, None, kind)
    return (out, *want), forms


def run_gradients(
    sizes: tuple[int, int, int], dtype: str, activation: str | None, residual: bool, seed: int = 0
) -> tuple[list[Errors], list[str]]:
    """As test_matmul's, through Hopper's kernels: those of the product and of its gradients."""
    from tests.gluon.interpreter import hopper_on_the_cpu

    with numbers(seed), hopper_on_the_cpu(2 + seed % 4, seed) as launches:
        found = test_matmul.run_gradients(dtype, activation, residual, *sizes)
    return found, launches.kernels


def run_silu(bias: torch.Tensor) -> torch.Tensor:
    """silu of every value of a bias, beside products of 0."""
    import kernels
    from tests.gluon.interpreter import hopper_on_the_cpu

    nothing = torch.zeros((72, 16), dtype=bias.dtype)
    out = torch.full((72, bias.numel()), math.nan, dtype=bias.dtype)
    b = torch.zeros((16, bias.numel()), dtype=bias.dtype)
    with hopper_on_the_cpu() as launches:
        kernels.matmul(nothing, b, bias=bias, activation="silu", out=out)
    assert launches.kernels == ["matmul_hopper"], launches.kernels
    assert torch.equal(out.view(torch.int16), out[:1].view(torch.int16).expand_as(out))
    return out[0]
