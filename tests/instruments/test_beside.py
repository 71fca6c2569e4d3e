"""Implementations beside each other: whoever fails is left out with one line, the others go on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from benchmarks.workloads.attention import SdpaWorkload
from warpwatch.instruments.gpu import measuring
from warpwatch.instruments.gpu.card.software import FakeGpu, FakeWorkload, Script
from warpwatch.instruments.gpu.latency import Limits
from warpwatch.instruments.outcome import Outcome
from warpwatch.instruments.peers import interleave
from warpwatch.instruments.peers import registry as peers
from warpwatch.instruments.peers.registry import Peer, PeerWorkload

QUICK = Limits(warm_up_seconds=0.002, min_samples=8, max_samples=10)
SDPA = SdpaWorkload(group="t", dtype="fp32", B=1, S=40, H=2, D=32)


def peer_of(name: str, run: Any, needs: str = "torch") -> PeerWorkload:
    return peers.of(SDPA, Peer(name, needs, lambda _: True, run))


def fails(*_: object) -> None:
    raise RuntimeError("No available kernel. Aborting execution.")


def test_answers_are_checked_and_who_fails_is_left_out():
    rivals = [
        peer_of("right", lambda w, i: w.reference(i)),
        peer_of("wrong", lambda w, i: w.reference(i) * 2),
        peer_of("fails", fails),
        peer_of("absent", fails, needs="no_such_module"),
    ]
    gpu = FakeGpu(Script(us=30))
    told = interleave.measure_beside(gpu, rivals, torch_device="cpu", limits=QUICK)
    found = {outcome.workload.partition(" @ ")[2]: outcome for outcome in told}
    assert {name: outcome.status for name, outcome in found.items()} == {
        "right": "ok",
        "wrong": "wrong answer",
        "fails": "failed",
        "absent": "not applicable",
    }
    assert found["right"].samples["latency_cold"]
    assert len(found["right"].samples["relative_error"]) == 2
    assert found["fails"].detail == "RuntimeError: No available kernel. Aborting execution."
    assert found["absent"].detail.startswith("absent: import no_such_module: ModuleNotFoundError")


class Group:
    """Workloads on a software GPU, and what was told while they were measured."""

    def __init__(self, **scripts: dict[str, Any]) -> None:
        self.gpu = FakeGpu()
        self.workloads = {
            name: FakeWorkload(name, self.gpu, **script) for name, script in scripts.items()
        }
        self.begun: list[str] = []

    def measure(self) -> dict[str, Outcome]:
        def begin(names: Sequence[str]) -> None:
            self.begun.append("+".join(names))

        workloads: list[Any] = list(self.workloads.values())
        told = interleave.measure_beside(
            self.gpu, workloads, limits=QUICK, begin=begin, check=lambda *_: 0.0
        )
        return {outcome.workload: outcome for outcome in told}


def test_one_that_fails_while_it_is_timed_costs_the_others_nothing():
    group = Group(ours={"us": 10}, bad={"fails_at": 8}, other={"us": 20})
    found = group.measure()
    assert {name: outcome.status for name, outcome in found.items()} == {
        "bad": "failed",
        "ours": "ok",
        "other": "ok",
    }
    assert len(found["ours"].samples["latency_cold"]) >= 8
    assert group.begun[:3] == ["ours", "bad", "other"]
    assert group.begun[-3:] == ["ours+other", "ours", "other"]


def test_after_a_lost_device_the_rest_is_left_to_another_process():
    found = Group(ours={"us": 10}, bad={"lost_at": 8}, other={"us": 20}).measure()
    assert {name: outcome.status for name, outcome in found.items()} == {"bad": "device lost"}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after timing"])
def test_a_reference_that_does_not_fit_loses_no_time(after: bool, monkeypatch: pytest.MonkeyPatch):
    group = Group(ours={"us": 10}, other={"us": 14})
    left = [None] if after else []

    def reference(*_: object) -> None:
        if not left:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 12 GiB")
        left.pop()

    monkeypatch.setattr(group.workloads["ours"], "reference", reference)
    found = group.measure()
    why = "OutOfMemoryError: CUDA out of memory. Tried to allocate 12 GiB"
    if not after:
        assert {outcome.status for outcome in found.values()} == {"out of memory"}
        assert {outcome.detail for outcome in found.values()} == {f"inputs and reference: {why}"}
        return
    assert {outcome.status for outcome in found.values()} == {"ok"}
    assert found["other"].detail.endswith(f"not checked again after timing: {why}")
    assert found["other"].samples["relative_error"] == (0.0,)
    assert len(found["other"].samples["latency_cold"]) >= 8


def test_who_is_far_behind_is_sampled_a_few_times_and_we_never():
    """At half the fastest peer's speed our own time still decides the ratio."""
    gpu = FakeGpu()
    calls = {
        name: gpu.add(Script(us=us, noise=0.02))
        for name, us in {"ours": 200, "best": 100, "near": 140, "far": 400}.items()
    }
    limits = Limits(warm_up_seconds=0.002, target=0.0)
    taken = interleave.interleave(gpu, calls, limits)
    counts = {name: len(one.samples) for name, one in taken.items()}
    assert counts == {"ours": 80, "best": 80, "near": 80, "far": interleave.FEW_SAMPLES}
    assert taken["far"].us == pytest.approx(400, rel=0.05)
    assert "far behind: 8 samples" in taken["far"].notes
    assert not any("far" in note for name in ("ours", "near") for note in taken[name].notes)
    for name in ("ours", "best", "near"):  # noise of 2 % in 80 samples
        (said,) = measuring.how_well(taken[name])
        assert re.fullmatch(r"known to ±0\.[4-9]\d %", said), said
    assert measuring.how_well(taken["far"]) == ()
    assert interleave.interleave(gpu, {}) == {}


def test_a_call_ahead_reports_what_went_wrong_and_goes_on():
    right = peer_of("right", lambda w, i: w.reference(i))
    assert measuring.call_once(right, "cpu") == Outcome(right.name, "ok")
    wrong = measuring.call_once(peer_of("fails", fails), "cpu")
    assert (wrong.status, wrong.detail) == (
        "failed",
        "RuntimeError: No available kernel. Aborting execution.",
    )
    absent = measuring.call_once(peer_of("absent", fails, needs="no_such_module"), "cpu")
    assert absent.status == "not applicable"
