"""Views that torch reads in ways of its own, and what torch is told of memory that is written."""

from __future__ import annotations

import re
from typing import Any

import torch

from tests.kernels.interpreted import Worker


def run_biases_of_one_value() -> list[tuple[torch.Tensor, torch.Tensor]]:
    import kernels

    a, b, column = torch.randn(5, 7), torch.randn(7, 1), torch.randn(6, 3)[::2, 0]
    pairs = [(kernels.matmul(a, b, bias=column[:1]), a @ b + column[:1])]
    return [*pairs, (kernels.matmul(a, b[:, :0], bias=column[:0]), torch.empty(5, 0))]


def test_a_bias_of_one_value_or_none_has_any_stride(interpreter: Worker) -> None:
    """It is contiguous, and .contiguous() leaves its stride as it is."""
    for got, expected in interpreter.run(run_biases_of_one_value):
        torch.testing.assert_close(got, expected)


def run_negated() -> list[tuple[str, str, bool]]:
    """Of each call: the name of its negated argument, the error it gets, and whether one that
    torch resolves in an operator, within a graph, is right."""
    import kernels

    x = torch.randn(1, 20, 2, 16, dtype=torch.complex64).conj().imag
    row = torch.randn(16, dtype=torch.complex64).conj().imag
    a, q = torch.randn(16, 16), x.clone()
    out, lse = kernels.flash_attention(q, q, q, return_lse=True)
    low, scale = a.to(torch.float8_e4m3fn), x[0, 0, 0, 0]
    calls: dict[str, Any] = {
        "q": lambda: kernels.flash_attention(x, q, q),
        "v": lambda: kernels.flash_attention_kvcache(q, q, q, q, x, cache_seqlens=0),
        "k_cache": lambda: kernels.flash_attention_kvcache(q, x, q),
        "dout": lambda: kernels.flash_attention_backward(x, q, q, q, out, lse),
        "sinks": lambda: kernels.flash_attention(q, q, q, sinks=row[:2]),
        "attn_mask": lambda: kernels.scaled_dot_product_attention(q, q, q, row[0]),
        "bias": lambda: kernels.matmul(a, a, bias=row),
        "out": lambda: kernels.matmul(a, a, out=row.expand(16, 16)),
        "a_scale": lambda: kernels.matmul(low, low, a_scale=scale),
        "q_scale": lambda: kernels.flash_attention(*[q.to(low.dtype)] * 3, q_scale=scale),
    }
    compiled = torch.compile(
        lambda one: kernels.flash_attention(one, one, one), backend="aot_eager", fullgraph=True
    )
    right = torch.allclose(compiled(x), out, rtol=1e-4, atol=1e-5)
    found = []
    for name, call in calls.items():
        try:
            call()
            found.append((name, "nothing", right))
        except ValueError as error:
            found.append((name, str(error), right))
    return found


def test_a_view_that_torch_negates_is_refused(interpreter: Worker) -> None:
    """Its memory has the other sign, which kernels would read."""
    for name, error, right in interpreter.run(run_negated):
        expected = rf"^{name}: expected values as they lie.*got a view that torch negates.*"
        assert re.match(expected + rf"pass {name}.resolve_neg\(\)$", error), (name, error)
        assert right


def run_written() -> list[tuple[str, str]]:
    """What autograd says where memory it has kept is written: by whom, and its error."""
    import kernels

    weight, found = torch.ones((), requires_grad=True), []

    def written(name: str, kept: torch.Tensor, write: Any) -> None:
        product = (weight * kept).sum()
        with torch.no_grad():
            write(kept)
        try:
            product.backward()
            found.append((name, "nothing"))
        except RuntimeError as error:
            found.append((name, str(error)))

    a, cache, new = torch.randn(16, 16), torch.randn(1, 32, 2, 16), torch.randn(1, 1, 2, 16)
    low = a.to(torch.float8_e4m3fn)

    def append(*caches: torch.Tensor) -> None:
        kernels.flash_attention_kvcache(new, *caches, new, new, cache_seqlens=3)

    written("matmul", a.clone(), lambda kept: kernels.matmul(a, a, out=kept))
    written("fp8", a.bfloat16(), lambda kept: kernels.matmul(low, low, out=kept))
    written("keys", cache.clone(), lambda kept: append(kept, cache.clone()))
    written("values", cache.clone(), lambda kept: append(cache.clone(), kept))
    with torch.inference_mode():  # its tensors have no version
        kernels.matmul(a, a, out=torch.empty(16, 16))
        append(cache.clone(), cache.clone())
    return found


def test_autograd_knows_what_is_written_in_place(interpreter: Worker) -> None:
    for name, error in interpreter.run(run_written):
        assert "modified by an inplace operation" in error, (name, error)
