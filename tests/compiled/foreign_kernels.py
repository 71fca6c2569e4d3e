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


@triton.jit
def inline_ptx(x, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    raised = tl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1;",
        "=f,f",
        [tl.load(x + at)],
        dtype=tl.float32,
        is_pure=True,
        pack=1,
    )
    tl.store(x + at, raised)


@triton.jit
def through_descriptors(x, y, rows, ROWS: tl.constexpr, N: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, N], [N, 1], [ROWS, N])
    target = tl.make_tensor_descriptor(y, [rows, N], [N, 1], [ROWS, N])
    row = tl.program_id(0) * ROWS
    target.store([row, 0], source.load([row, 0]))


@triton.jit
def staged_kernel(x, y, K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr):
    o_m, o_k = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_K)
    b_y = tl.zeros((BLOCK_M, BLOCK_M), tl.float32)
    for k in range(0, K, BLOCK_K):
        b_x = tl.load(x + o_m[:, None] * K + (k + o_k)[None, :])
        b_z = tl.load(x + o_m[None, :] * K + (k + o_k)[:, None])
        b_y = tl.dot(b_x, b_z, b_y)
    tl.store(y + o_m[:, None] * BLOCK_M + o_m[None, :], b_y)


CONFIGURATIONS = [triton.Config({"BLOCK_M": 16, "BLOCK_K": 32}, num_warps=1, num_stages=2)]


def staged(x: torch.Tensor, config: dict[str, int]) -> torch.Tensor:
    y = torch.empty((config["BLOCK_M"], config["BLOCK_M"]), device=x.device)
    staged_kernel[(1,)](x, y, x.shape[1], **config)
    return y


def by_inline_ptx(x: torch.Tensor) -> None:
    inline_ptx[(x.numel() // 256,)](x, BLOCK=256)


def by_descriptors(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    through_descriptors[(x.shape[0] // 8,)](x, y, x.shape[0], ROWS=8, N=x.shape[1])
    return y


def on_the_host() -> None:
    x = torch.empty(4096)
    y = torch.empty_like(x)
    tuned_copy.fn[(64,)](x, y, 4096, BLOCK=64)


def brought_to_the_device(how: str) -> None:
    """Every way in which a tensor gets where kernels reach it."""
    x, there = torch.empty(4096), torch.empty(1, device="cuda")
    ways = {
        "cuda": lambda: x.cuda(),
        "to": lambda: x.to("cuda"),
        "to_device": lambda: x.to(there.device),
        "to_other": lambda: x.to(there),
        "made_there": lambda: torch.empty(4096, device="cuda"),
        "made_like": lambda: torch.empty_like(x, device="cuda"),
        "pinned": lambda: x.pin_memory(),
        "made_pinned": lambda: torch.empty(4096, pin_memory=True),
        "copied": lambda: torch.empty(4096, device="cuda").copy_(x),
        "added": lambda: torch.empty(4096, device="cuda") + 1,
        "new": lambda: there.new_empty(4096),
        "module": lambda: torch.nn.Linear(64, 64, bias=False).to("cuda").weight.detach().view(-1),
    }
    moved = ways[how]()
    tuned_copy.fn[(64,)](moved, torch.empty_like(moved), 4096, BLOCK=64)


@triton.autotune([triton.Config({"BLOCK": 64}, num_warps=w) for w in (64, 128)], key=["n"])
@triton.jit
def tuned_too_wide(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


def too_wide(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    tuned_too_wide[(1,)](x, y, x.numel())
    return y[: tuned_too_wide.best_config.kwargs["BLOCK"]]


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
