"""Which rows the forward pass marks for the gradients: those of one heavy weight."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.kernels.interpreted import Worker

ROWS, KEYS, HEADS = 70, 150, 2
HEAVY = 0.4
# Nearer than this 16 bits and fp64 may differ.
NEAR = 0.01


def scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """(batch, heads, rows, keys) in fp64, scaled."""
    q, k = (one.double().transpose(1, 2) for one in (q, k))
    return q @ k.mT * q.shape[3] ** -0.5


def drawn(
    dtype: torch.dtype, rows: int = ROWS, keys: int = KEYS, head_dim: int = 32
) -> list[torch.Tensor]:
    """q, k and v: of a row's own key the weight is anything."""
    generator = torch.Generator().manual_seed(rows)
    shapes = [(1, n, HEADS, head_dim) for n in (rows, keys, keys)]
    q, k, v = (torch.randn(shape, generator=generator) for shape in shapes)
    times = torch.linspace(0.0, 1.5, rows)[:, None, None] * (32 / head_dim) ** 0.5
    q += times * k[:, torch.arange(rows) % keys]
    return [one.to(dtype) for one in (q, k, v)]


# Beside what is asked of scores; which operator, and by how many.
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "bf16": {"dtype": torch.bfloat16},
    "causal": {"causal": True},
    "keyless rows": {"causal": True, "rows": 150, "keys": 60},
    "packed": {"causal": True, "rows": 150, "packed": True},
    "sinks": {"sinks": torch.tensor([3.0, -1.0])},
    "heavy sinks": {"sinks": torch.tensor([30.0, 9.0])},
    "bias": {"bias": -1e3},
    "far": {"bias": -1e4},
    "few queries": {"rows": 16, "keys": 600},
}


def run(
    dtype: torch.dtype = torch.float16,
    causal: bool = False,
    rows: int = ROWS,
    keys: int = KEYS,
    head_dim: int = 32,
    packed: bool = False,
    sinks: torch.Tensor | None = None,
    bias: float | None = None,
) -> tuple[torch.Tensor, ...]:
    """Both log-sum-exps, the one that is returned alone, and weights of keys in fp64."""
    import kernels.public  # noqa: F401 - registers the operators

    q, k, v = drawn(dtype, rows, keys, head_dim)
    s = scores(q, k)
    masks: tuple[Any, ...] = (causal, keys - rows if causal else 0, None)
    seen = torch.ones(rows, keys, dtype=torch.bool, device=q.device).tril(keys - rows)
    biases = None if bias is None else torch.full((1, 1, rows, 1), bias, device=q.device)
    sinks = None if sinks is None else sinks.to(q.device)
    if bias is not None:
        s = s + bias
    if causal:
        s = s.masked_fill(~seen, -torch.inf)
    if sinks is not None:
        s = torch.cat((s, sinks.double()[None, :, None, None].expand(*s.shape[:3], 1)), 3)
    weights = torch.softmax(s, 3).nan_to_num(0.0)[..., :keys]
    scale = head_dim**-0.5
    operators = torch.ops.warpwatch
    if packed:
        given = [one[0] for one in (q, k, v)]
        ends = torch.tensor([0, rows], dtype=torch.int32, device=q.device)
        masks = (causal, 0, None)

        def called(*asked: bool) -> Any:
            lengths = (ends, ends, rows, rows)
            options = (None,) * 5
            return operators.flash_attention_varlen(
                *given, *lengths, *masks, scale, *options, *asked
            )
    else:

        def called(*asked: bool) -> Any:
            options = (None, None, sinks, None, None, asked[0], biases, None, None, None)
            return operators.flash_attention(q, k, v, *masks, scale, *options, asked[1])

    _, lse, marked = called(True, True)
    _, none, alone = called(True, False)
    _, without, nothing = called(False, True)
    assert not none.numel()
    assert not nothing.numel()
    found = [one.reshape(1, HEADS, rows) for one in (lse, marked, alone, without)]
    return (*found, weights)


def run_case(case: str) -> tuple[torch.Tensor, ...]:
    return run(**CASES[case])


def judge(
    case: str,
    lse: torch.Tensor,
    rows: torch.Tensor,
    alone: torch.Tensor,
    without: torch.Tensor,
    weights: torch.Tensor,
) -> None:
    """That just those rows are marked whose heaviest weight is heavy, as far as 16 bits tell."""
    assert torch.equal(lse, without)
    assert torch.equal(rows, alone)
    finite = lse.isfinite()
    assert torch.equal(rows[~finite], lse[~finite])
    # Both signs' bits count away from 0.
    apart = (rows.view(torch.int32) - lse.view(torch.int32)).abs()
    assert apart[finite].max() <= 1
    marks = (rows.view(torch.int32) & 1).bool()
    if case == "few queries":
        assert marks.all()
        return
    if case == "far":  # kernels of few keys serve
        assert not marks.any()
        return
    heaviest = weights.amax(3)
    clear = finite & ((heaviest - HEAVY).abs() > NEAR)
    # What other keys sum up to beside a heavy sink tells no more than that one of them may be.
    others = weights.sum(3) if "sinks" in case else heaviest
    assert marks[clear & (heaviest > HEAVY)].all()
    assert not marks[clear & (others < HEAVY - NEAR)].any()
    assert case == "heavy sinks" or 10 < marks.sum() < marks.numel() - 10


@pytest.mark.parametrize("case", CASES)
def test_rows_of_one_heavy_weight_are_marked(interpreter: Worker, case: str) -> None:
    judge(case, *interpreter.run(run_case, case))


def run_light() -> list[torch.Tensor]:
    """Gradients of rows without a heavy weight, exact ones and others."""
    import kernels

    q, k, v = (one.requires_grad_() for one in drawn(torch.float16))
    with torch.no_grad():
        q /= 4.0
    return [
        torch.cat([one.flatten() for one in torch.autograd.grad(out.sum(), (q, k, v))])
        for out in (
            kernels.flash_attention(q, k, v),
            kernels.flash_attention(q, k, v, exact_gradients=False),
        )
    ]


def test_without_a_heavy_weight_gradients_differ_by_a_mark_alone(interpreter: Worker) -> None:
    exact, others = interpreter.run(run_light)
    assert (exact - others).abs().max() <= 2**-10 * others.abs().max()
    assert (exact == others).double().mean() > 0.95
