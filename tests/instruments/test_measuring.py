"""Answer, time, answer: what one workload's outcome says, on a software GPU with real tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import kernels
from warpwatch.instruments.gpu import accuracy, measuring
from warpwatch.instruments.gpu.card.interface import GpuError
from warpwatch.instruments.gpu.card.software import FakeGpu, Script
from warpwatch.instruments.gpu.latency import Limits
from warpwatch.workload.base import Inputs, Values, Workload

QUICK = Limits(warm_up_seconds=0.002, max_samples=20)


@dataclass(frozen=True, kw_only=True)
class Scaled(Workload):
    """A small product whose kernel is given by the test."""

    kernel: str = "matmul"
    group: str = "test"
    dtype: str = "fp16"
    behaviour: Callable[[torch.Tensor, torch.Tensor], Any] = torch.matmul
    work: int = 2 * 32**3
    needs: tuple[str, ...] = ()

    name = "scaled"

    @property
    def flops(self) -> int:
        return self.work

    @property
    def bytes_moved(self) -> int:
        return 3 * 32 * 32 * 2

    def inputs(self, device: str, seed: int = 0, values: Values = "random") -> Inputs:
        generator = torch.Generator().manual_seed(seed)
        a, b = (torch.randn(32, 32, generator=generator).half() for _ in "ab")
        return {"a": a, "b": b}

    def call(self, inputs: Inputs) -> Any:
        return self.behaviour(inputs["a"], inputs["b"])

    def reference(self, inputs: Inputs, dtype: str | None = None) -> Any:
        kind = getattr(torch, dtype or "float16")
        return inputs["a"].to(kind) @ inputs["b"].to(kind)


def run(workload: Workload, gpu: FakeGpu | None = None) -> measuring.Outcome:
    return measuring.measure(gpu or FakeGpu(), workload, torch_device="cpu", limits=QUICK)


def test_a_right_kernel_is_timed_by_both_methods_and_its_error_recorded_twice():
    outcome = run(Scaled(), FakeGpu(Script(us=40, cold_us=60)))
    assert outcome.status == "ok"
    assert sorted(outcome.samples["latency_cold"])[8] == pytest.approx(60, rel=0.01)
    assert sorted(outcome.samples["latency_warm"])[8] == pytest.approx(40, rel=0.01)
    before, after = outcome.samples["relative_error"]
    assert 0 < before < 2e-3 and 0 < after < 2e-3 and before != after
    assert outcome.evidence["latency_cold"]["mhz"] == 1980


def test_the_share_of_peak_uses_the_clock_of_each_sample():
    flops = 10**11
    gpu = FakeGpu(Script(us=200, noise=0, mhz=1500), name="NVIDIA H200")
    outcome = run(Scaled(work=flops), gpu)
    peak = 132 * 4096 * 1.5e9
    assert outcome.samples["peak_share"][0] == pytest.approx(100 * flops / 200e-6 / peak)


def test_an_unknown_card_has_no_share_of_a_peak_and_says_so():
    outcome = run(Scaled(work=10**11), FakeGpu(name="NVIDIA H200 NVL"))
    assert outcome.status == "ok" and "peak_share" not in outcome.samples
    assert "no datasheet of 'NVIDIA H200 NVL': no share of a peak, no floor" in outcome.detail
    known = run(Scaled(work=10**11), FakeGpu(Script(us=200), name="NVIDIA H200"))
    assert "datasheet" not in known.detail


def test_a_wrong_answer_is_never_timed():
    gpu = FakeGpu()
    outcome = run(Scaled(behaviour=lambda a, b: (a @ b) * 1.01), gpu)
    assert outcome.status == "wrong answer"
    assert "relative error 0.01 against fp64, allowed 0.002" in outcome.detail
    assert gpu.runs == 0


def test_a_nan_is_wrong():
    outcome = run(Scaled(behaviour=lambda a, b: torch.full_like(a, float("nan"))))
    assert outcome.status == "wrong answer"


def test_a_kernel_that_remembers_its_first_answer_is_found_by_fresh_inputs():
    answers: list[torch.Tensor] = []

    def remembers(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if not answers:
            answers.append(a @ b)
        return answers[0]

    assert run(Scaled(behaviour=remembers)).status == "wrong answer"


@pytest.mark.parametrize("lost", [False, True], ids=["no memory", "lost"])
def test_a_second_reference_that_does_not_fit_costs_no_times(
    lost: bool, monkeypatch: pytest.MonkeyPatch
):
    reference, calls = Scaled.reference, iter("once")
    why = "CUDA error: an illegal memory access" if lost else "CUDA out of memory"
    raised = RuntimeError(why) if lost else torch.OutOfMemoryError(why)

    def fits_once(self: Scaled, inputs: Inputs, dtype: str | None = None) -> Any:
        if next(calls) != "o":
            raise raised
        return reference(self, inputs, dtype)

    monkeypatch.setattr(Scaled, "reference", fits_once)
    outcome = run(Scaled(), FakeGpu(Script(us=40, cold_us=60)))
    if lost:
        assert outcome.status == "device lost"
        return
    assert outcome.status == "ok"
    assert outcome.detail.endswith(f"not checked again after timing: OutOfMemoryError: {why}")
    assert len(outcome.samples["relative_error"]) == 1
    assert {"latency_cold", "latency_warm"} <= outcome.samples.keys()


def test_a_time_no_hardware_reaches_is_an_error():
    outcome = run(Scaled(work=10**12), FakeGpu(Script(us=100), name="NVIDIA H200"))
    assert outcome.status == "failed"
    assert "below the roofline floor of 934.1" in outcome.detail


def test_a_commit_without_the_kernel_is_not_applicable():
    outcome = run(Scaled(kernel="paged_attention"))
    assert (outcome.status, outcome.detail) == ("not applicable", "kernels has no paged_attention")
    assert hasattr(kernels, "matmul")


def test_a_commit_whose_kernel_lacks_an_argument_is_not_applicable():
    outcome = run(Scaled(needs=("bias", "sparsity")))
    why = "kernels.matmul has no argument sparsity"
    assert (outcome.status, outcome.detail) == ("not applicable", why)
    assert run(Scaled(needs=("bias",))).status == "ok"


def test_a_commit_without_an_option_is_not_applicable():
    def older(a: torch.Tensor, b: torch.Tensor, **options: object) -> torch.Tensor:
        raise TypeError("matmul() got an unexpected keyword argument 'bias'")

    assert run(Scaled(behaviour=older)).status == "not applicable"


@pytest.mark.parametrize(
    ("raised", "status"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "out of memory"),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), "device lost"),
        (RuntimeError("shape mismatch"), "failed"),
    ],
    ids=["memory", "device", "other"],
)
def test_what_a_kernel_raises_becomes_one_line(raised: Exception, status: str):
    def fails(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        raise raised

    outcome = run(Scaled(behaviour=fails))
    assert outcome.status == status
    assert "\n" not in outcome.detail


@pytest.mark.parametrize(
    "text",
    [
        # CUDA's words for what a context does not survive; then NVML's, and HIP's runtime's.
        "CUDA error: an illegal memory access was encountered",
        "CUDA error: an illegal instruction was encountered",
        "CUDA error: misaligned address",
        "CUDA error: invalid program counter",
        "CUDA error: hardware stack error",
        "CUDA error: operation not supported on global/shared address space",
        "CUDA error: unspecified launch failure",
        "CUDA error: the launch timed out and was terminated",
        "CUDA error: device-side assert triggered",
        "CUDA error: uncorrectable ECC error encountered",
        "CUDA error: uncorrectable NVLink error detected during the execution",
        "Triton Error [CUDA]: an illegal memory access was encountered",
        "GPU is lost",
        "HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in a hardware exception.",
    ],
)
@pytest.mark.parametrize("kind", [RuntimeError, GpuError])
def test_an_error_no_context_survives_is_a_lost_device(kind: type[Exception], text: str):
    assert measuring.status_of(kind(text)) == "device lost"


@pytest.mark.parametrize(
    ("initialized", "survives", "status"),
    [(True, True, "failed"), (True, False, "device lost"), (False, False, "failed")],
    ids=["context-lives", "context-gone", "no-context"],
)
def test_after_an_unknown_error_the_context_is_asked(
    monkeypatch: pytest.MonkeyPatch, initialized: bool, survives: bool, status: str
):
    def synchronize() -> None:
        if not survives:
            raise RuntimeError("CUDA error: a word nobody knew")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: initialized)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    assert measuring.status_of(RuntimeError("CUDA error: a word nobody knew")) == status


def test_gradients_are_compared_one_by_one():
    truth = (torch.ones(4, 4, dtype=torch.float64), torch.ones(4, dtype=torch.float64))
    ours = (torch.ones(4, 4), torch.ones(4) * 1.5)
    assert accuracy.relative_error(ours, truth) == pytest.approx(0.5)
    with pytest.raises(accuracy.WrongAnswerError, match="expected 2 outputs, got 1"):
        accuracy.relative_error(ours[:1], truth)
    with pytest.raises(accuracy.WrongAnswerError, match=r"expected shape \(4, 4\), got \(4, 5\)"):
        accuracy.relative_error((torch.ones(4, 5), ours[1]), truth)
