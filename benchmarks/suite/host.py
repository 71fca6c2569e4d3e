"""asv's view of host overhead: what one call costs the CPU until it is queued; needs no GPU."""

from __future__ import annotations

from typing import ClassVar

from benchmarks import isolation, metrics
from benchmarks.configuration import workloads as load_workloads
from benchmarks.instruments import commit, host

_NAMES = (
    "attention-fp16-B4-S1024-H8-D64",
    "sdpa-fp16-B12-S256-H64-D64",
    "matmul-fp16-1024x1024x1024",
    "matmul-bf16-16x4096x4096-nt",
)
_WORKLOADS = [one for one in load_workloads().all_workloads() if one.name in _NAMES]


class Host:
    """Host code runs against a driver that only records launches, so any machine measures it."""

    timeout = 60
    params: ClassVar[list[list[str]]] = [[workload.name for workload in _WORKLOADS]]
    param_names = ("workload",)

    def setup_cache(self) -> commit.Cache:
        isolation.measured()
        return host.measure([workload.name for workload in _WORKLOADS])

    setup_cache.timeout = 300  # type: ignore[attr-defined]  # asv reads it

    track_host_us = commit.tracker(metrics.get("host_us"), _WORKLOADS)
