"""``attention_chunk``: queries that see the keys of their own chunk alone, against fp64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.kernels.interpreted import Worker
from tests.kernels.scores_cases import Case, run

BASE = Case(chunk=32)
CASES = [
    replace(BASE, causal=True),
    replace(BASE, S=40, KV=100, dtype="bfloat16", H=4, G=2, sinks=True),
    replace(BASE, causal=True, softcap=2.0, alibi="batch", B=2, view="transposed"),
    replace(BASE, window=(10, 3), S=100, KV=110, dtype="float32", alibi="heads"),
    # Whole chunks are entries of a batch.
    replace(BASE, S=96, KV=96, B=2, H=4, G=2, causal=True, alibi="batch", sinks=True),
    replace(BASE, S=96, KV=96, B=2, chunk=48, window=(9, 9), dtype="bfloat16", view="transposed"),
    # Of 100 queries the last 60 see keys.
    replace(BASE, S=100, KV=60, chunk=25, causal=True, B=2, DV=16),
    # All queries are in the last chunk, the keys before it are nobody's.
    replace(BASE, S=5, KV=150, chunk=64, causal=True, alibi="heads", view="padded"),
    replace(BASE, chunk=1000, causal=True, sinks=True, dropout=0.2),
    # Of 90 queries 20 see no key.
    replace(BASE, chunk=2**40, S=90),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_outputs_and_gradients_match_fp64(interpreter: Worker, case: Case) -> None:
    interpreter.check(run, case, draws=2 if case.dtype == "float32" else 1)


def run_compiled() -> list[list[torch.Tensor]]:
    import kernels

    def model(*tensors: Any) -> Any:
        return kernels.flash_attention(*tensors, attention_chunk=32, causal=True)

    leaves = [one.detach().requires_grad_() for one in replace(BASE, S=40).tensors()]
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    outputs = [one(*leaves) for one in (compiled, model)]
    return [[out.detach(), *torch.autograd.grad(out.sum(), leaves)] for out in outputs]


def test_it_compiles_in_one_graph(interpreter: Worker) -> None:
    compiled, eager = interpreter.run(run_compiled)
    assert all(torch.equal(one, other) for one, other in zip(compiled, eager, strict=True))


def run_beside_nan(dtype: str) -> list[torch.Tensor]:
    import kernels

    # Queries of keys 60 to 99, in the third and fourth chunk.
    q, k, v = (one.to(getattr(torch, dtype)) for one in replace(BASE, S=40, KV=100).tensors())
    k[:, :60], v[:, :60] = float("nan"), float("nan")
    scale = {"q_scale": torch.tensor([[0.5, 2.0]])} if dtype == "float8_e4m3fn" else {}
    found = kernels.flash_attention(q, k, v, attention_chunk=30, causal=True, **scale)
    places = (slice(0, 30), slice(60, 90)), (slice(30, 40), slice(90, 100))
    each = [
        kernels.flash_attention(q[:, rows], k[:, keys], v[:, keys], causal=True, **scale)
        for rows, keys in places
    ]
    return [found, torch.cat(each, 1)]


@pytest.mark.parametrize("dtype", ["float16", "float8_e4m3fn"])
def test_chunks_are_as_each_by_itself_beside_nan(interpreter: Worker, dtype: str) -> None:
    one, other = interpreter.run(run_beside_nan, dtype)
    assert torch.equal(one, other)


def run_whole(dtype: str) -> list[torch.Tensor]:
    import kernels

    q, k, v = (one.to(getattr(torch, dtype)) for one in replace(BASE, S=64, KV=64, B=2).tensors())
    scale = {"k_scale": torch.tensor([[0.5, 2.0], [1.0, 3.0]])} if "float8" in dtype else {}
    given: dict[str, Any] = {"causal": True, "return_lse": True, **scale}
    out, lse = kernels.flash_attention(q, k, v, attention_chunk=32, **given)
    each = [
        kernels.flash_attention(*(one[:, rows] for one in (q, k, v)), **given)
        for rows in (slice(0, 32), slice(32, 64))
    ]
    outs, lses = zip(*each, strict=True)
    return [out, torch.cat(outs, 1), lse, torch.cat(lses, 2)]


@pytest.mark.parametrize("dtype", ["float16", "float8_e4m3fn"])
def test_whole_chunks_are_as_each_by_itself(interpreter: Worker, dtype: str) -> None:
    out, outs, lse, lses = interpreter.run(run_whole, dtype)
    assert torch.equal(out, outs) and torch.equal(lse, lses) and lse.is_contiguous()


def run_few_keys(chunk: int, dtype: str) -> list[torch.Tensor]:
    import kernels

    q, k, v = (one.to(getattr(torch, dtype)) for one in replace(BASE, S=3).tensors())
    k[:, :64], v[:, :64] = float("nan"), float("nan")
    return [
        kernels.flash_attention(q, k, v, attention_chunk=chunk),
        kernels.flash_attention(q, k[:, 64:], v[:, 64:]),
    ]


@pytest.mark.parametrize("dtype", ["float16", "float8_e4m3fn"])
def test_keys_of_other_chunks_are_not_read(interpreter: Worker, dtype: str) -> None:
    one, other = interpreter.run(run_few_keys, 32, dtype)
    assert torch.equal(one, other)
