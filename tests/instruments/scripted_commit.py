"""Two workloads of a software card, and what asv reads of a commit that measured them."""

from __future__ import annotations

from typing import Any

from warpwatch.asv.suite import measured
from warpwatch.config import metrics
from warpwatch.config.package import workloads as load_workloads
from warpwatch.session import commit, utilization

FAST, SLOW = "matmul-fp16-1024x1024x1024", "matmul-fp16-4096x4096x4096"
READ = utilization.read  # most tests have another


def track(metric: str, cache: commit.Cache, workload: str) -> Any:
    yardstick = load_workloads()
    function = measured.tracker(metrics.get(metric), [yardstick.get(workload)], "kernels")
    return function(None, cache, workload)
