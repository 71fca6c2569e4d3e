"""Host overhead: the cost of the Python between a call and its launch."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.suite.host import Host
from tests.compiled import foreign_kernels
from tests.root import ROOT
from warpwatch import project
from warpwatch.instruments.gpu import host


def busy(microseconds: float) -> None:
    end = time.process_time_ns() + microseconds * 1000
    while time.process_time_ns() < end:
        pass


def test_batches_give_the_cpu_time_of_one_call():
    taken = host.batches(lambda: busy(200), count=5, calls=3)
    assert len(taken) == 5
    assert 200 <= min(taken) <= 260


def test_sleeping_is_no_host_cost():
    assert statistics.median(host.batches(lambda: time.sleep(0.002), count=3, calls=2)) < 1000


def test_our_kernels_are_measured_without_a_gpu():
    name = "matmul-fp16-1024x1024x1024"
    row = host.measure([name])[name]
    assert row["status"] == "ok"
    samples = row["samples"]["host_us"]
    assert len(samples) == host.BATCHES
    assert 5 < statistics.median(samples) < 2000
    assert Host().track_host_us({name: row}, name) == {"samples": samples, "number": 1}


def test_a_workload_of_no_kernel_is_refused():
    with pytest.raises(ValueError, match="unknown workload"):
        host.measure(["no-such"])


def test_an_autotuner_of_a_configured_call_looks_its_choice_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search for it is no cost of a call."""
    file = tmp_path / "warpwatch.toml"
    file.write_text(
        f'[package]\nname = "tests.compiled"\npath = "tests/compiled"\nrepository = "{ROOT}"\n'
        '[[workload]]\nname = "copied"\ncall = "tests.compiled.foreign_kernels:copied"\n'
        'args = "fp32[4096]"\n[sets]\nhost = ["*"]\n'
    )
    monkeypatch.setenv(project.FILE_VARIABLE, str(file))
    tuner: Any = foreign_kernels.tuned_copy
    pruned: list[int] = []
    original = tuner.prune_configs
    monkeypatch.setattr(tuner, "prune_configs", lambda given: pruned.append(1) or original(given))
    row = host.measure(["copied"])["copied"]
    assert (row["status"], row["detail"], pruned) == ("ok", "", [1])
    assert 5 < statistics.median(row["samples"]["host_us"]) < 2000
    assert tuner.cache == {}, "a choice that no card has made is kept nowhere"
