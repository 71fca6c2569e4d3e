"""Of equal calls ``compare`` reads what they cost the host."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from warpwatch.compare import host_time
from warpwatch.config.isolation import Measured
from warpwatch.instruments.outcome import Outcome
from warpwatch.judge.model import thresholds
from warpwatch.session.session import Session
from warpwatch.session.versions import Version


def test_those_the_project_asks_for_are_read() -> None:
    names = ["matmul-fp16-1024x1024x1024", "matmul-fp16-4096x4096x4096"]
    assert host_time.chosen(names) == ["matmul-fp16-1024x1024x1024"]
    assert host_time.judge(*2 * [version("same")], [], thresholds.load(), print) == []


def version(side: str) -> Version:
    return Version(side, Measured("kernels", side, side, ""), {**os.environ, "SIDE": side})


def test_a_slower_launch_of_an_equal_call_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(3)

    class Process:
        def __init__(self, request: Mapping[str, Any], environment: Mapping[str, str]) -> None:
            assert request == {"mode": "host"}
            self.side = environment["SIDE"]

        def run(self, names: Sequence[str]) -> dict[str, Outcome]:
            slower = {"late": 1.3 if self.side == "head" else 1.0}
            return {
                name: Outcome(
                    name,
                    "ok",
                    "",
                    {
                        "host_us": (
                            float(50 * slower.get(name, 1.0) * np.exp(random.normal(0, 0.02))),
                        )
                    },
                )
                for name in names
            }

    monkeypatch.setattr(host_time, "Session", Process)
    said: list[str] = []
    judged = host_time.judge(
        version("base"), version("head"), ["late", "same"], thresholds.load(), said.append
    )
    found = {one.subject: (one.metric, one.judgement.verdict, one.evidence) for one in judged}
    assert found == {
        "late": ("host_us", "regressed", False),
        "same": ("host_us", "unchanged", False),
    }
    assert said[0].startswith("host: pair")


def test_a_worker_reads_it_without_a_gpu() -> None:
    name = "matmul-fp16-1024x1024x1024"
    outcome = Session({"mode": "host"}).run([name])[name]
    assert (outcome.status, outcome.detail) == ("ok", "")
    assert 5 < np.median(outcome.samples["host_us"]) < 2000
