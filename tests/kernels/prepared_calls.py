"""Calls of every kind whose launches are prepared once a form, and the launches as tests compare
them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

import kernels
from warpwatch.instruments.compiled.formats.recording import DescriptorArgument, TensorArgument

Call = Callable[[], Any]


def drawn(*shape: int, kind: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.zeros(shape, dtype=kind)


def gradients(*shape: int, **options: Any) -> Call:
    given = [drawn(*shape).requires_grad_() for _ in "qkv"]
    dout = drawn(*shape)
    return lambda: torch.autograd.grad(kernels.flash_attention(*given, **options), given, dout)


def decoding(length: int | None = None) -> Call:
    q, cache = drawn(4, 1, 8, 64), drawn(4, 512, 2, 64)
    lengths = torch.full((4,), 300, dtype=torch.int32) if length is None else length
    return lambda: kernels.flash_attention_kvcache(q, cache, cache, cache_seqlens=lengths)


def appending() -> Call:
    q, new = drawn(4, 1, 8, 64), drawn(4, 1, 2, 64)
    k, v = (drawn(4, 512, 2, 64) for _ in range(2))
    lengths = torch.full((4,), 300, dtype=torch.int32)
    return lambda: kernels.flash_attention_kvcache(q, k, v, new, new, cache_seqlens=lengths)


def packed() -> Call:
    q = drawn(300, 4, 64)
    ends = torch.tensor([0, 100, 300], dtype=torch.int32)
    return lambda: kernels.flash_attention_varlen(q, q, q, ends, ends, 200, 200, causal=True)


def low() -> Call:
    a = drawn(256, 256, kind=torch.float8_e4m3fn)
    return lambda: kernels.matmul(a, a.t(), a_scale=torch.ones(()), b_scale=torch.ones(()))


def low_attention() -> Call:
    q = drawn(1, 256, 2, 64, kind=torch.float8_e4m3fn)
    return lambda: kernels.flash_attention(q, q, q)


def product(**options: Any) -> Call:
    a, b = drawn(256, 256), drawn(256, 256)
    return lambda: kernels.matmul(a, b, **options)


def biased() -> Call:
    """On portable kernels, through views and operations of torch."""
    q = drawn(1, 128, 2, 64)
    slopes = torch.ones(2, dtype=torch.float16)
    return lambda: kernels.flash_attention(q, q, q, alibi_slopes=slopes, softcap=20.0)


def rounded() -> Call:
    """A product whose second operand is copied by a launch of its own first."""
    a, b = drawn(512, 256, kind=torch.float32), drawn(256, 256, kind=torch.float32)
    return lambda: kernels.matmul(a, b, allow_tf32=True)


CALLS: dict[str, Callable[[], Call]] = {
    "matmul": product,
    "matmul-fp8": low,
    "gradients": lambda: gradients(1, 256, 2, 64),
    "packed": packed,
    "decoding": decoding,
    "appending": appending,
    "attention-fp8": low_attention,
    "scores": biased,
    "matmul-tf32": rounded,
    "gradients-bias": lambda: gradients(1, 64, 2, 32, bias=drawn(1, 2, 64, 64)),
}


def launched(recorder: Any, call: Call) -> list[Any]:
    recorder.launches.clear()
    call()
    return list(recorder.launches)


def without_addresses(launches: list[Any]) -> list[Any]:
    """Launches as they are compared: kernels by their code, tensors by all but where they lie."""

    def plain(value: Any) -> Any:
        if isinstance(value, TensorArgument):
            return replace(value, address=value.address % 16)
        if isinstance(value, DescriptorArgument):
            return replace(value, base=plain(value.base))
        return tuple(map(plain, value)) if isinstance(value, tuple) else value

    # Where memory begins within a line; memory of torch on a GPU begins with one.
    lines = ("a_phase",)
    return [
        (
            one.kernel.binary,
            one.grid,
            {name: plain(x) for name, x in one.arguments.items() if name not in lines},
        )
        for one in launches
    ]
