"""The short gelu of 16-bit outputs against fp64, in Triton's interpreter."""

from __future__ import annotations

import math

import pytest
import torch
import triton
import triton.language as tl

from kernels.matmul.common.activation import apply_activation
from tests.kernels.interpreted import Errors, Worker, measure
from tools.kernels.fitted_gelu import exact, grid, relative_errors


@triton.jit
def activation_kernel(source, target, ACTIVATION: tl.constexpr, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    b_x = apply_activation(tl.load(source + at), ACTIVATION, tl.float16)
    tl.store(target + at, b_x)


def run_activation(source: torch.Tensor, activation: str) -> torch.Tensor:
    """Before the rounding to 16 bits."""
    room = torch.zeros(-(-source.numel() // 1024) * 1024)
    room[: source.numel()] = source
    found = torch.full_like(room, math.nan)
    activation_kernel[(room.numel() // 1024,)](room, found, activation, 1024)
    return found[: source.numel()]


def test_short_gelu_is_as_exact_as_it_says(interpreter: Worker) -> None:
    x = grid(40_000)
    found = interpreter.run(run_activation, torch.from_numpy(x), "gelu").numpy()
    in_fp16, beyond = relative_errors(found, x)
    assert in_fp16 <= 9.5e-6 and beyond <= 9e-5, (in_fp16, beyond)


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
def test_infinities_nan_and_zeros_are_torchs(interpreter: Worker, activation: str) -> None:
    ends = [math.inf, -math.inf, math.nan, 0.0, 1e30, -1e30, 3e38, -3e38, 14.5, 20.0, 1e-38]
    source = torch.tensor(ends)
    found = interpreter.run(run_activation, source, activation)
    # Of fp64, which is right on every processor: fp32's gelu(inf) is NaN on some with AVX-512.
    expected = getattr(torch.nn.functional, activation)(source.double()).float()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0.0, equal_nan=True)


def run_tail(dtype: torch.dtype) -> Errors:
    """A product of one term: the activation of every step from -12.9 on."""
    import kernels

    a = torch.linspace(-12.9, 0.0, 4096).to(dtype)[:, None]
    b = torch.ones((1, 1), dtype=dtype)
    found = kernels.matmul(a, b, activation="gelu")
    truth = torch.from_numpy(exact(a.double().numpy()))
    # Each value in units of its own last place: the small ones count as much as the large.
    info = torch.finfo(dtype)
    unit = torch.exp2(torch.floor(torch.log2(truth.abs().clamp_min(info.tiny)))) * info.eps
    return measure((found.double() / unit).float(), (truth.to(dtype) / unit).float(), truth / unit)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
def test_negative_tail_is_rounded_once(interpreter: Worker, dtype: torch.dtype) -> None:
    """The error function's difference from 1 has no digits there: its formula gives 0 from -5.6."""
    errors = interpreter.run(run_tail, dtype)
    assert errors.max_error <= 0.52, errors
    assert errors.rms <= 1.01 * errors.plain_rms, errors
