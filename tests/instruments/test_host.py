"""Host overhead: the cost of the Python between a call and its launch."""

from __future__ import annotations

import statistics
import time

import pytest

from benchmarks.suite.host import Host
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
