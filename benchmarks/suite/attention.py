"""asv's view of the attention kernels on a GPU; not applicable where there is none."""

from __future__ import annotations

from benchmarks.configuration import workloads as load_workloads
from benchmarks.instruments import commit

globals().update(
    commit.classes(
        __name__, [one for one in load_workloads().all_workloads() if "attention" in one.kernel]
    )
)
