"""Training steps with several attentions are interleaved and see the same batches.

Each function that the tool is imported by runs in the interpreter's process: the example's model
makes Triton interpret all that its process launches.
"""

from __future__ import annotations

import contextlib
import io
from typing import Any

import pytest
import torch

from tests.kernels.interpreted import Worker

STEPS = 8


def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The formula, as no kernel computes it."""
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    weights = scores.masked_fill(~seen, float("-inf")).softmax(-1).to(v.dtype)
    return torch.einsum("bhqk,bkhd->bqhd", weights, v)


def trained() -> tuple[dict[str, tuple[int, tuple[float, ...]]], list[str], list[str], str]:
    """Steps timed and losses by name, those whose losses are apart, what is printed, the plot."""
    from examples import gpt
    from tools.kernels.speed import training_step

    size = gpt.Size(layers=1, width=32, heads=2, tokens=16, rows=2, steps=STEPS, rate=1e-2)
    runs = {"ours": gpt.in_bf16, "torch": gpt.by_torch, "plain": plain}
    found = training_step.compared(size, "cpu", runs)
    taken = {name: (len(one.ms), one.losses) for name, one in found.items()}
    lines = training_step.lines(found)
    return taken, training_step.apart(found), lines, training_step.drawn(found)


def test_the_same_formula_learns_the_same(interpreter: Worker) -> None:
    taken, apart, lines, drawn = interpreter.run(trained)
    assert [timed for timed, _ in taken.values()] == [STEPS] * 3
    losses = {name: each for name, (_, each) in taken.items()}
    for name in ("torch", "plain"):
        assert losses[name] == pytest.approx(losses["ours"], rel=0.02)
    assert losses["ours"][-1] < losses["ours"][0]
    assert apart == []
    assert lines[0].startswith("ours") and "ours over it 1.000 +- 0.000" in lines[0]
    assert "Milliseconds of a step" in drawn and drawn.count("<polyline") == 2 * len(taken)


def named() -> list[str]:
    from tools.kernels.speed import training_step

    taken = {
        name: training_step.Taken((1.0, 2.0, 3.0), (5.0, last))
        for name, last in (("ours", 3.0), ("near", 3.05), ("far", 3.2), ("lost", float("nan")))
    }
    return training_step.apart(taken)


def test_losses_that_end_elsewhere_or_nowhere_are_named(interpreter: Worker) -> None:
    assert interpreter.run(named) == ["far", "lost"]


def refused() -> tuple[Any, str]:
    from tools.kernels.speed import training_step

    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            return training_step.main([]), said.getvalue()
        except SystemExit as ended:
            return ended.code, said.getvalue()


@pytest.mark.skipif(torch.cuda.is_available(), reason="here is a GPU")
def test_without_a_gpu_it_says_so(interpreter: Worker) -> None:
    code, said = interpreter.run(refused)
    assert code == 2 and "no GPU that torch can use" in said
