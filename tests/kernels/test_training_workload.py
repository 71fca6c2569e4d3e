"""The workload that takes gradients as autograd does, with and without a heavy first key."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from benchmarks import workloads
from benchmarks.workloads.attention_backward import TrainingWorkload
from tests.kernels.interpreted import Worker
from warpwatch.config.package import load
from warpwatch.instruments.gpu import accuracy

SHAPE: dict[str, Any] = {"dtype": "bf16", "B": 1, "S": 130, "H": 2, "G": 1, "D": 32, "causal": True}


def test_it_counts_both_passes() -> None:
    case = TrainingWorkload(group="test", **SHAPE)
    assert case.flops == 7 * 2 * 2 * 32 * (130 * 131 // 2)
    assert case.bytes_moved == 2 * 130 * 32 * (3 * 2 + 4 * 1)
    # Before it could be asked for, a commit's gradients held the rounding of the output.
    assert case.needs == ("exact_gradients",)
    asked = workloads.select(group="training")
    assert {one.name.endswith("-sink") for one in asked} == {False, True}
    assert len({one.name for one in asked} & set(load().sets.history)) == 3


def weights(case: TrainingWorkload) -> torch.Tensor:
    """Of key 0 in every row."""
    made = case.inputs("cpu", seed=2)
    q, k = (made[name].double().transpose(1, 2) for name in "qk")
    scores = q @ k.repeat_interleave(case.H // case.kv_heads, 1).mT * case.D**-0.5
    hidden = torch.ones(case.S, case.keys).triu(1).bool()
    return torch.softmax(scores.masked_fill(hidden, -torch.inf), 3)[..., 0]


def test_a_sink_has_most_of_every_row() -> None:
    heavy = weights(TrainingWorkload(group="test", sink=True, **SHAPE))
    light = weights(TrainingWorkload(group="test", **SHAPE))
    assert heavy.min() > 0.7
    assert 0.88 < heavy[..., -1].mean() < 0.93
    assert light[..., -1].mean() < 0.1


def run(sink: bool, exact: bool) -> float:
    """The error as the suite judges it, by its tolerance."""
    import kernels

    case = TrainingWorkload(group="test", sink=sink, **SHAPE)
    inputs = case.inputs("cpu")
    found = case.call(inputs)
    if not exact:
        leaves = [inputs[name].requires_grad_() for name in "qkv"]
        out = kernels.flash_attention(*leaves, causal=True, exact_gradients=False)
        found = torch.autograd.grad(out, leaves, inputs["dout"])
    error = accuracy.relative_error(found, case.reference(inputs, "float64"))
    return error / accuracy.tolerance(case)


@pytest.mark.parametrize("sink", [False, True])
def test_its_gradients_are_the_formulas(interpreter: Worker, sink: bool) -> None:
    assert interpreter.run(run, sink, True) <= 1.0


def test_behind_a_sink_those_by_the_rounded_output_are_not(interpreter: Worker) -> None:
    assert interpreter.run(run, True, False) > 1.0
