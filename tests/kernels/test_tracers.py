"""Calls without gradients that torch must see: of plain tensors, of classes that dispatch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_map_only

from tests.kernels.interpreted import Worker

E4M3 = torch.float8_e4m3fn


def run_traced() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Graphs that are made of what the dispatcher sees of plain tensors, given other values."""
    import kernels

    low = torch.randn(16, 16).to(E4M3)

    def decode(q: Any) -> Any:
        k, v = q.clone(), q.clone()
        return kernels.flash_attention_kvcache(q, k, v, q[:, :1], q[:, :1], cache_seqlens=2)

    def backward(q: Any) -> Any:
        out, lse = kernels.flash_attention(q, q, q, return_lse=True)
        return kernels.flash_attention_backward(q, q, q, q, out, lse)[0]

    calls = (
        lambda q: kernels.flash_attention(q, q, q, causal=True),
        decode,
        backward,
        lambda q: kernels.matmul(q[0, :, 0], low.float()),
        lambda q: kernels.matmul(q[0, :, 0], low.float(), out=torch.empty(4, 16)),
        lambda q: kernels.matmul(low, low) * q[0, 0, 0, 0],
        lambda q: kernels.flash_attention(*[low[None, :, None]] * 3) * q[0, 0, 0, 0],
    )
    found, (first, second) = [], torch.randn(2, 1, 4, 2, 16)
    for call in calls:
        found.append((make_fx(call)(first)(second), call(second)))
        with warnings.catch_warnings(action="ignore"):  # of its end in torch
            found.append((torch.jit.trace(call, first, check_trace=False)(second), call(second)))
    return found


def test_plain_tensors_may_be_traced(interpreter: Worker) -> None:
    for traced, eager in interpreter.run(run_traced):
        assert torch.equal(traced, eager)


def run_plain_among_fake() -> list[tuple[int, ...]]:
    import kernels

    a, q = torch.randn(16, 16), torch.randn(1, 4, 2, 16)
    with FakeTensorMode(allow_non_fake_inputs=True):
        found = (kernels.matmul(a, a), kernels.flash_attention(q, q, q))
        return [tuple(one.shape) for one in found]


def test_plain_tensors_may_be_among_fake_ones(interpreter: Worker) -> None:
    assert interpreter.run(run_plain_among_fake) == [(16, 16), (1, 4, 2, 16)]


class Wrapped(torch.Tensor):
    """A tensor whose own memory holds nothing, as those of quantised weights and of torch's
    collectives: operators take what it wraps."""

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> Wrapped:
        kind: dict[str, Any] = {"dtype": held.dtype, "device": held.device}
        make: Any = torch.Tensor._make_wrapper_subclass
        made: Wrapped = make(cls, held.shape, strides=held.stride(), **kind)
        return made

    def __init__(self, held: torch.Tensor) -> None:
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map_only(Wrapped, lambda one: one.held, (args, kwargs or {}))
        return func(*args, **kwargs)


def run_wrapped() -> dict[str, bool]:
    """Whether a call gives the same where one of its tensors is wrapped, by that one's name."""
    import kernels

    q, k, v = (torch.randn(1, 4, 2, 16) for _ in range(3))
    a, b = torch.randn(4, 16), torch.randn(16, 16)
    low_q, low_a = q.to(E4M3), b.to(E4M3)
    out, lse = kernels.flash_attention(q, k, v, return_lse=True)
    attend, matmul = kernels.flash_attention, kernels.matmul

    def decode(k_cache: Any, k: Any, **scale: Any) -> Any:
        kind = E4M3 if scale else k.dtype
        caches = [torch.zeros(1, 8, 2, 16).to(kind) for _ in range(2)]
        caches[1] = Wrapped(caches[1]) if isinstance(k_cache, Wrapped) else caches[1]
        return kernels.flash_attention_kvcache(q, *caches, k, v, cache_seqlens=3, **scale)

    calls: dict[str, tuple[Callable[[Any], Any], torch.Tensor]] = {
        "k": (lambda one: attend(q, one, v), k),
        "sinks": (lambda one: attend(q, k, v, sinks=one), torch.randn(2)),
        "q_scale": (lambda one: attend(low_q, low_q, low_q, q_scale=one), torch.rand(2)),
        "v_cache": (lambda one: decode(one, k), v),
        "new k": (lambda one: decode(q, one), k),
        "k_scale": (lambda one: decode(q, k, k_scale=one), torch.rand(2)),
        "lse": (lambda one: kernels.flash_attention_backward(q, q, k, v, out, one)[0], lse),
        "b": (lambda one: matmul(a, one), b),
        "residual": (lambda one: matmul(a, b, residual=one, out=torch.empty(4, 16)), a),
        "a_scale": (lambda one: matmul(low_a, low_a, a_scale=one), torch.rand(16)),
    }
    with torch.no_grad():
        weight = torch.nn.Parameter(b)
        found = {"parameter": torch.equal(matmul(a, weight), matmul(a, b))}
        for name, (call, given) in calls.items():
            found[name] = torch.equal(call(Wrapped(given)), call(given))
    return found


def test_any_tensor_may_be_of_a_class_that_dispatches(interpreter: Worker) -> None:
    found = interpreter.run(run_wrapped)
    assert found == dict.fromkeys(found, True)
