"""Functions for ``torch.compile``, as users write them; Inductor generates their kernels."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional


@torch.compile
def gated(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x) + 1


@torch.compile
def normed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return functional.rms_norm(x, (x.shape[-1],), weight)


@torch.compile
def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.relu(x @ weight + bias)


heard: list[str] = []


@torch.compile
def broken(x: torch.Tensor) -> torch.Tensor:
    y = torch.sin(x) * 2
    torch._dynamo.graph_break()
    heard.append(f"{y.device} {y.is_cuda}")
    total = torch.add(y, 1)
    torch._dynamo.graph_break()
    return total.exp() * y


@torch.compile(dynamic=True)
def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def two_lengths(x: torch.Tensor) -> None:
    softmax(x)
    softmax(x[: x.shape[0] // 2])


@triton.jit
def add_one(x, y, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # Triton's
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


@torch.compile
def around_a_kernel(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    add_one[(triton.cdiv(x.numel(), 512),)](x, y, x.numel(), BLOCK=512)
    return y * 3


@torch.compile
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


@torch.compile
def of_constants(x: torch.Tensor) -> torch.Tensor:
    on_device = torch.tensor([1.0, 2.0], device="cuda").sum()
    return x * torch.tensor(3.0) + torch.ones(x.shape[-1], device=x.device) + on_device


@torch.compile(mode="max-autotune")
def tuned(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return functional.gelu(x @ weight).sum(-1)


@torch.compile
def by_target(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if torch.version.hip else x - 1


def _refuse(graph: torch.fx.Graph) -> None:
    raise RuntimeError("a pass of the user's fails")


@torch.compile(options={"post_grad_custom_pre_pass": _refuse})
def failing(x: torch.Tensor) -> torch.Tensor:
    return x + 1


class Layer(torch.nn.Module):
    """Its parameters lie where there is a device, as a benchmark makes them."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(64, 128, device="cuda")
        self.norm = torch.nn.LayerNorm(128, device="cuda")

    def forward(self, x: torch.Tensor) -> Any:
        return self.norm(functional.silu(self.up(x)))


class Scaled(torch.autograd.Function):
    """A function with a gradient of its own, for some of its arguments."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float, y: torch.Tensor) -> Any:
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x.sin() * factor, y * 2

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (x,) = ctx.saved_tensors
        of_x, of_y = gradients
        return of_x * x.cos() * ctx.factor, None, of_y * 2


@torch.compile
def scaled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = Scaled.apply(x, 3.0, y)[0]
    return found + 1


def layer(x: torch.Tensor) -> Any:
    return torch.compile(Layer(), fullgraph=True)(x)


def shapes_alone(x: torch.Tensor) -> torch.Tensor:
    """As Helion looks at its arguments, with operations that nothing runs."""
    mode = FakeTensorMode()
    with mode:
        traced = mode.from_tensor(x)
        found = traced @ traced.T
        assert found.device == traced.device == torch.device("cuda", 0)
        assert x.device == torch.device("cuda", 0)
    return torch.empty(found.shape, device="cuda").zero_()
