"""The calls that are timed, each with its peer's."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

Call = Callable[[], Any]


@dataclass(frozen=True)
class Case:
    """A call of ours, and the one of a peer that it is compared with, where that is there."""

    name: str
    ours: Call
    peer: str
    theirs: Call | None
    to_reach: float | None = None


def _fa3() -> Any:
    try:
        return importlib.import_module("flash_attn_interface")
    except ImportError:
        return None


def _sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return functional.scaled_dot_product_attention(q, k, v)


def _drawn(*shape: int, device: str) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.bfloat16).to(device)


def _forward(device: str) -> Case:
    import kernels

    q, k, v = (_drawn(1, 512, 8, 128, device=device) for _ in range(3))
    heads = [one.transpose(1, 2).contiguous() for one in (q, k, v)]
    return Case(
        "attention forward",
        lambda: kernels.flash_attention(q, k, v),
        "SDPA",
        lambda: _sdpa(*heads),
        1.5,
    )


def _lowered(device: str) -> Case:
    """The forward pass as mixed precision calls it; both enter autocast."""
    import kernels

    given = [_drawn(1, 512, 16, 64, device=device).requires_grad_() for _ in range(3)]
    heads = [one.detach().transpose(1, 2).requires_grad_() for one in given]

    def lowered(call: Callable[..., Any], tensors: list[torch.Tensor]) -> Any:
        with torch.autocast(device, torch.bfloat16):
            return call(*tensors)

    return Case(
        "attention forward in autocast",
        lambda: lowered(kernels.flash_attention, given),
        "SDPA",
        lambda: lowered(_sdpa, heads),
    )


def _differentiated(device: str) -> tuple[Case, Case]:
    """The forward pass where somebody wants gradients, and both passes."""
    import kernels

    given = [_drawn(1, 512, 8, 128, device=device).requires_grad_() for _ in range(3)]
    heads = [one.detach().transpose(1, 2).contiguous().requires_grad_() for one in given]
    dout, dheads = torch.randn_like(given[0]), torch.randn_like(heads[0])
    forward = Case(
        "attention forward for gradients",
        lambda: kernels.flash_attention(*given),
        "SDPA",
        lambda: _sdpa(*heads),
    )
    both = Case(
        "attention forward and backward",
        lambda: torch.autograd.grad(kernels.flash_attention(*given), given, dout),
        "SDPA",
        lambda: torch.autograd.grad(_sdpa(*heads), heads, dheads),
        1.0,
    )
    return forward, both


class _Nothing(torch.autograd.Function):
    """Reserves what both passes of attention give and keep, and launches nothing."""

    @staticmethod
    def forward(ctx: Any, *given: torch.Tensor) -> torch.Tensor:
        out, rows = torch.empty_like(given[0]), given[0].new_empty(given[0].numel() // 128)
        ctx.save_for_backward(*given, out, rows)
        ctx.set_materialize_grads(False)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return tuple(torch.empty_like(one) for one in ctx.saved_tensors[:3])


def bare(device: str) -> Case:
    """Both passes of a function of autograd that does nothing: the part that is torch's own."""
    given = [_drawn(1, 512, 8, 128, device=device).requires_grad_() for _ in range(3)]
    dout = torch.randn_like(given[0])
    # Without what Function.apply does for torch.func, as ours is called.
    apply: Any = super(torch.autograd.Function, _Nothing).apply
    return Case(
        "a function that does nothing",
        lambda: torch.autograd.grad(apply(*given), given, dout),
        "no peer",
        None,
    )


def _product(device: str) -> Case:
    import kernels

    a, b = (_drawn(1024, 1024, device=device) for _ in range(2))
    return Case("matmul", lambda: kernels.matmul(a, b), "torch.mm", lambda: torch.mm(a, b), 1.5)


def _decoding(device: str) -> Case:
    import kernels

    q = _drawn(16, 1, 32, 128, device=device)
    k, v = (_drawn(16, 1024, 8, 128, device=device) for _ in range(2))
    lengths = torch.full((16,), 1000, dtype=torch.int32, device=device)
    peer = _fa3()
    return Case(
        "decoding",
        lambda: kernels.flash_attention_kvcache(q, k, v, cache_seqlens=lengths, causal=True),
        "FlashAttention-3",
        peer
        and (lambda: peer.flash_attn_with_kvcache(q, k, v, cache_seqlens=lengths, causal=True)),
        0.35,
    )


def _varlen(device: str) -> Case:
    import kernels

    q, k, v = (_drawn(1024, 8, 128, device=device) for _ in range(3))
    ends = torch.tensor([0, 300, 512, 1024], dtype=torch.int32, device=device)
    peer = _fa3()
    return Case(
        "packed sequences forward",
        lambda: kernels.flash_attention_varlen(q, k, v, ends, ends, 512, 512, causal=True),
        "FlashAttention-3",
        peer and (lambda: peer.flash_attn_varlen_func(q, k, v, ends, ends, 512, 512, causal=True)),
        1.0,
    )


def _low(device: str) -> Case:
    import kernels

    a, b = (_drawn(1024, 1024, device=device).to(torch.float8_e4m3fn) for _ in range(2))
    scale = torch.ones((), device=device)

    def theirs() -> Any:
        return torch._scaled_mm(a, b.t(), scale, scale, out_dtype=torch.bfloat16)

    return Case(
        "fp8 matmul",
        lambda: kernels.matmul(a, b.t(), a_scale=scale, b_scale=scale),
        "torch._scaled_mm",
        theirs if device == "cuda" else None,
        1.5,
    )


def cases(device: str) -> list[Case]:
    """All cases, their tensors on ``device``."""
    makers = (_product, _decoding, _varlen, _low)
    first = (_forward(device), *_differentiated(device), _lowered(device))
    return [*first, *(make(device) for make in makers)]
