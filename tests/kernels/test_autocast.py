"""torch.autocast lowers the operands of the public operations, gradients come back as given."""

from __future__ import annotations

from typing import Any

import torch

from tests.kernels.interpreted import Worker


def run() -> dict[str, list[torch.Tensor]]:
    import kernels

    generator = torch.Generator().manual_seed(1)

    def make(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).requires_grad_()

    def attend(q: Any, k: Any, v: Any) -> Any:
        return kernels.flash_attention(q, k, v, causal=True)

    def linear(a: Any, b: Any, bias: Any) -> Any:
        return kernels.matmul(a, b, bias=bias)

    def varlen(q: Any, k: Any, v: Any) -> Any:
        return kernels.flash_attention_varlen(q, k, v, ends, ends, 13, 13)

    ends = torch.tensor([0, 7, 20], dtype=torch.int32)
    found: dict[str, list[torch.Tensor]] = {}
    for name, operation, given in (
        ("attend", attend, [make(1, 20, 2, 16) for _ in range(3)]),
        ("sdpa", kernels.scaled_dot_product_attention, [make(1, 2, 20, 16) for _ in range(3)]),
        ("varlen", varlen, [make(20, 2, 16) for _ in range(3)]),
        ("linear", linear, [make(20, 16), make(16, 24), make(24)]),
    ):
        # Mixed, as a layer's fp32 weights and 16-bit activations are.
        given[0] = given[0].detach().half().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = operation(*given)
            compiled = torch.compile(operation, fullgraph=True, backend="aot_eager")(*given)
        want = operation(*(one.bfloat16() for one in given))
        found[name] = [
            out,
            want,
            compiled,
            want,
            *(
                each
                for pair in zip(
                    torch.autograd.grad(out.sum(), given),
                    torch.autograd.grad(want.sum(), given),
                    strict=True,
                )
                for each in pair
            ),
        ]
    double = torch.ones(4, 4, dtype=torch.float64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        kept = kernels.matmul(double.float(), double.float(), out=torch.empty(4, 4))
    found["out"] = [kept, 4 * torch.ones(4, 4)]
    # Of the cache's dtype are q and v; a norm of keys alone gives k in fp32.
    caches = [torch.zeros(1, 8, 2, 16, dtype=torch.bfloat16) for _ in range(4)]
    new = [make(1, 1, 2, 16).detach() for _ in range(3)]
    low = [one.bfloat16() for one in new]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = kernels.flash_attention_kvcache(
            low[0], *caches[:2], new[1], low[2], cache_seqlens=3, causal=True
        )
    want = kernels.flash_attention_kvcache(
        low[0], *caches[2:], *low[1:], cache_seqlens=3, causal=True
    )
    found["kvcache"] = [got, want, caches[0], caches[2]]
    q, dout = (make(1, 20, 2, 16).detach() for _ in range(2))
    low, dlow = q.bfloat16(), dout.bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        given = kernels.flash_attention(q, q, q, return_lse=True)
        got = kernels.flash_attention_backward(dout, q, q, q, *given)
    want = kernels.flash_attention_backward(dlow, low, low, low, *given)
    found["backward"] = [each for pair in zip(got, want, strict=True) for each in pair]
    return {name: [one.detach() for one in tensors] for name, tensors in found.items()}


def test_autocast_lowers_operands_and_keeps_the_dtypes_of_gradients(interpreter: Worker) -> None:
    for name, tensors in interpreter.run(run).items():
        assert name == "out" or tensors[0].dtype == torch.bfloat16
        for got, want in zip(tensors[::2], tensors[1::2], strict=True):
            assert got.dtype == want.dtype, name
            assert torch.equal(got, want), name
