"""asv's view of the attention kernels on a GPU; not applicable where there is none."""

from __future__ import annotations

from warpwatch.asv.suite import measured
from warpwatch.config.package import workloads as load_workloads

globals().update(
    measured.classes(
        __name__, [one for one in load_workloads().all_workloads() if "attention" in one.kernel]
    )
)
