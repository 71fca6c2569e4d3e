"""Host overhead of a call with pytest-benchmark, against the driver that only records launches.

``make overhead`` keeps figures that the report reads; the tests themselves only hold how many
launches a call is, and that it stays far from a millisecond of host time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from warpwatch.config import targets
from warpwatch.config.package import workloads as load_workloads
from warpwatch.instruments.compiled.record import driver
from warpwatch.instruments.compiled.record.torch import cuda as torch_cuda

TARGET = targets.get("sm_90")
LIMIT_US = 1000.0


@pytest.fixture(scope="module")
def recorder() -> Iterator[Any]:
    with driver.active(TARGET) as active, torch_cuda.answered(TARGET):
        yield active


@pytest.mark.benchmark(timer=time.process_time, group="host overhead of a call")
@pytest.mark.parametrize(
    ("name", "launches"),
    [
        ("attention-fp16-B4-S1024-H8-D64", 1),
        # The values turned around, and the products.
        ("attention-fp8-B4-S4096-H16-D128", 2),
        ("sdpa-fp16-B12-S256-H64-D64", 1),
        ("matmul-fp16-1024x1024x1024", 1),
        # Parts of the keys, and their sum.
        ("attention-kvcache-bf16-B16-S1-KV4096-H32-G8-D128-page64-causal", 2),
        ("matmul-bf16-16x4096x4096-nt", 1),
    ],
)
def test_a_call_costs_the_host_less_than_a_millisecond(
    benchmark: Any, recorder: Any, name: str, launches: int
):
    workload = load_workloads().get(name)
    inputs = workload.inputs("cpu", values="none")
    workload.call(inputs)  # compiles
    assert not recorder.failures
    recorder.launches.clear()
    workload.call(inputs)
    assert len(recorder.launches) == launches

    benchmark.pedantic(
        lambda: (recorder.launches.clear(), workload.call(inputs)), rounds=20, iterations=10
    )
    if benchmark.stats is not None:  # None with --benchmark-disable
        assert benchmark.stats.stats.median * 1e6 < LIMIT_US
