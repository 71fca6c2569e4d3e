"""NaN and +inf come out where the plain formula's do: in outputs, log-sum-exps and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from benchmarks.workloads.formula import plain_attention
from tests.kernels.interpreted import Worker

INF, NAN = float("inf"), float("nan")
# Tensor, index, number. Head dims are 16, and k of head 0 has both signs along column 3.
SPOILS: dict[str, list[tuple[str, tuple[int, ...], float]]] = {
    "q": [("q", (0, 3, 0, 3), INF)],
    "k": [("k", (0, 5, 0, 3), INF)],
    "-q": [("q", (0, 3, 1, 3), -INF)],
    "q and k": [("q", (0, 3, 0, 3), INF), ("k", (0, 11, 0, 7), NAN)],
    "twice q": [("q", (0, 3, 0, 3), INF), ("q", (0, 3, 0, 4), INF)],
    "nan q": [("q", (0, 3, 0, 3), NAN)],
    "nan k": [("k", (0, 5, 0, 3), NAN)],
    "v": [("v", (0, 5, 0, 3), INF), ("v", (0, 6, 0, 4), -INF)],
    "both v": [("v", (0, 5, 0, 3), INF), ("v", (0, 6, 0, 3), -INF)],
    "nan v": [("v", (0, 5, 0, 3), NAN)],
}
Kinds = list[torch.Tensor]


def drawn(dtype: torch.dtype, seqlen_k: int) -> list[torch.Tensor]:
    made = torch.Generator().manual_seed(1)
    shapes = {"q": (1, 20, 2, 16), "k": (1, seqlen_k, 1, 16), "v": (1, seqlen_k, 1, 16)}
    return [torch.randn(shape, generator=made).to(dtype) for shape in shapes.values()]


def spoil(tensors: list[torch.Tensor], name: str) -> None:
    for which, at, number in SPOILS[name]:
        tensors["qkv".index(which)][at] = number


def kinds(*found: torch.Tensor) -> Kinds:
    """0 for a number, 1 for +inf, 2 for -inf, 3 for NaN."""
    return [one.isposinf() + 2 * one.isneginf() + 3 * one.isnan() for one in found]


def run(name: str, dtype: str, seqlen_k: int) -> tuple[Kinds, Kinds]:
    """Kinds of output, log-sum-exp and gradients, and those of the formula in fp64."""
    import kernels

    tensors = drawn(getattr(torch, dtype), seqlen_k)
    spoil(tensors, name)
    dout = torch.randn(1, 20, 2, 16)
    found: list[Kinds] = []
    for kind in (tensors[0].dtype, torch.float64):
        q, k, v = (one.to(kind).requires_grad_() for one in tensors)
        out, lse = (
            plain_attention(q, k, v)
            if kind == torch.float64
            else kernels.flash_attention(q, k, v, return_lse=True)
        )
        gradients = torch.autograd.grad(out, (q, k, v), dout.to(kind))
        found.append(kinds(out.detach(), lse.detach(), *gradients))
    return found[0], found[1]


# 24 keys are exact (FEW_KEYS in backward.py), 40 are not.
@pytest.mark.parametrize(
    ("dtype", "seqlen_k"),
    [("float16", 40), ("bfloat16", 24), ("float32", 40)],
    ids=lambda one: str(one),
)
@pytest.mark.parametrize("name", SPOILS)
def test_full_attention_has_the_formulas(
    interpreter: Worker, name: str, dtype: str, seqlen_k: int
) -> None:
    found, wanted = interpreter.run(run, name, dtype, seqlen_k)
    for what, mine, theirs in zip(("out", "lse", "dq", "dk", "dv"), found, wanted, strict=True):
        assert torch.equal(mine, theirs), what


def row_options(name: str) -> dict[str, Any]:
    if name == "alibi and sinks":
        return {"alibi_slopes": torch.tensor([0.5, 0.25]), "sinks": torch.tensor([1.0, -2.0])}
    if name == "bias":
        return {"bias": torch.linspace(-1.0, 1.0, 40).expand(1, 1, 1, 40)}
    if name == "dropout":
        return {"dropout_p": 0.5, "dropout_seed": 3}
    return {"causal": True} if name == "causal" else {}


def run_row(name: str) -> tuple[torch.Tensor, ...]:
    """Output, log-sum-exp and dv of head 0, of which row 3 has a score of +inf."""
    import kernels

    q, k, v = drawn(torch.float16, 40)
    q[0, 3, 0, 3] = INF
    v.requires_grad_()
    if name == "packed":
        ends = torch.tensor([0, 20], dtype=torch.int32)
        keys = torch.tensor([0, 40], dtype=torch.int32)
        tensors = (one[0] for one in (q, k, v))
        found: Any = kernels.flash_attention_varlen(*tensors, ends, keys, 20, 40, return_lse=True)
        out, lse = found[0], found[1]
    else:
        found = kernels.flash_attention(q, k, v, **row_options(name), return_lse=True)
        out, lse = found[0][0], found[1][0]
    (dv,) = torch.autograd.grad(out[:, 0].float().sum(), v)
    return out[:, 0].detach(), lse[0].detach(), dv[0, :, 0]


ROWS = ("alibi and sinks", "bias", "dropout", "causal", "packed")


@pytest.mark.parametrize("name", ROWS)
def test_a_row_with_an_infinite_score(interpreter: Worker, name: str) -> None:
    out, lse, dv = interpreter.run(run_row, name)
    check_row(name, out, lse, dv)


def check_row(name: str, out: torch.Tensor, lse: torch.Tensor, dv: torch.Tensor) -> None:
    spoilt = torch.arange(20) == 3
    assert torch.equal(lse.isposinf(), spoilt) and torch.equal(lse.isfinite(), ~spoilt)
    assert torch.equal(out.isnan().all(1), spoilt) and torch.equal(out.isnan().any(1), spoilt)
    # Its weights are NaN; which hidden ones are, too, depends on the tile.
    weighed = torch.arange(40) <= 23 if name == "causal" else torch.arange(40) >= 0
    if name != "dropout":
        assert dv[weighed].isnan().all()


def run_decoding(
    splits: int, dtype: str, sinks: bool, beside: bool, head_dim: int = 16
) -> tuple[torch.Tensor, ...]:
    """Of two sequences and two heads one row has a score of +inf; ``beside`` a NaN."""
    import kernels

    made = torch.Generator().manual_seed(1)
    q = torch.randn(2, 1, 2, head_dim, generator=made).to(getattr(torch, dtype))
    k, v = (torch.randn(2, 300, 1, head_dim, generator=made).to(q.dtype) for _ in range(2))
    q[1, 0, 0, 3] = INF
    if beside:
        k[1, 290, 0, 5] = NAN
    return kernels.flash_attention_kvcache(
        q,
        k,
        v,
        cache_seqlens=torch.tensor([300, 300], dtype=torch.int32),
        num_splits=splits,
        sinks=torch.tensor([1.0, -2.0]) if sinks else None,
        return_lse=True,
    )


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside-nan"])
@pytest.mark.parametrize(
    ("splits", "dtype", "sinks"),
    [(1, "bfloat16", False), (3, "bfloat16", True), (3, "float32", False)],
    ids=lambda one: str(one),
)
def test_decoding(interpreter: Worker, splits: int, dtype: str, sinks: bool, beside: bool) -> None:
    out, lse = interpreter.run(run_decoding, splits, dtype, sinks, beside)
    check_decoded(out, lse, beside)


def check_decoded(out: torch.Tensor, lse: torch.Tensor, beside: bool) -> None:
    spoilt = torch.tensor([[[False], [False]], [[True], [beside]]])
    assert torch.equal(lse.isnan() | lse.isposinf(), spoilt)
    assert bool(lse[1, 0, 0].isnan() if beside else lse[1, 0, 0].isposinf())
    assert torch.equal(out.isnan().all(-1), spoilt[:, :, 0][:, None])


def run_infinite_sinks(splits: int, dtype: str, head_dim: int = 16) -> tuple[torch.Tensor, ...]:
    """Of four heads the sinks of the first and the last are infinite; no key of sequence 0."""
    import kernels

    made = torch.Generator().manual_seed(1)
    q = torch.randn(2, 1, 4, head_dim, generator=made).to(getattr(torch, dtype))
    k, v = (torch.randn(2, 300, 2, head_dim, generator=made).to(q.dtype) for _ in range(2))
    return kernels.flash_attention_kvcache(
        q,
        k,
        v,
        cache_seqlens=torch.tensor([0, 300], dtype=torch.int32),
        num_splits=splits,
        sinks=torch.tensor([INF, 0.5, -INF, INF]),
        return_lse=True,
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("splits", [1, 3])
def test_decoding_with_infinite_sinks(interpreter: Worker, splits: int, dtype: str) -> None:
    check_infinite_sinks(*interpreter.run(run_infinite_sinks, splits, dtype))


def check_infinite_sinks(out: torch.Tensor, lse: torch.Tensor) -> None:
    infinite = torch.tensor([True, False, False, True])
    assert torch.equal(lse.isposinf()[..., 0], infinite.expand(2, 4))
    assert torch.equal(lse[0, 1:3, 0], torch.tensor([0.5, -INF]))
    assert lse[1, 1:3].isfinite().all()
    assert torch.equal(out[1, 0].isnan().all(-1), infinite)
    assert torch.equal(out[1, 0].isnan().any(-1), infinite)
