"""Kernels as other libraries write them: atomics, a tuner, a product of torch's own, spills."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def sum_by_atomics(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(y + at % 64, tl.load(x + at, mask=at < n), mask=at < n)
    tl.atomic_add(y, 1.0)


@triton.autotune([triton.Config({"BLOCK": 64}, num_warps=w) for w in (1, 2, 4)], key=["n"])
@triton.jit
def tuned_copy(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def many_registers(x, y, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    total = tl.zeros((N, N), tl.float32)
    for step in range(16):
        one = tl.load(x + at + step)
        total += one * tl.sum(one, 1)[:, None]
    tl.store(y + at, total)


def by_atomics(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros(64, device=x.device)
    sum_by_atomics[(x.numel() // 256,)](x, y, x.numel(), BLOCK=256)
    return y


def copied(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    tuned_copy[(triton.cdiv(x.numel(), 64),)](x, y, x.numel())
    return y


def spilled(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    many_registers[(1,)](x, y, 128, num_warps=2)
    return y


class _Summed(torch.autograd.Function):
    """Its backward skips a kernel where the first gradient is one, as losses do."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.sum()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        if not torch.equal(gradient, torch.tensor(1.0, device=gradient.device)):
            gradient = by_atomics(gradient.expand(1024).contiguous()).sum()
        return gradient.expand(1024)


def trained() -> None:
    x = torch.empty(1024, device="cuda", requires_grad=True)
    _Summed.apply(x).backward()
