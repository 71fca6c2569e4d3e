"""asv's view of the matmul kernels, and of every other that is no attention, on a GPU."""

from __future__ import annotations

from warpwatch.asv.suite import measured
from warpwatch.config.package import workloads as load_workloads

globals().update(
    measured.classes(
        __name__, [one for one in load_workloads().all_workloads() if "attention" not in one.kernel]
    )
)
