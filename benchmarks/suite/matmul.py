"""asv's view of the matmul kernels, and of every other that is no attention, on a GPU."""

from __future__ import annotations

from benchmarks.configuration import workloads as load_workloads
from benchmarks.instruments import commit

globals().update(
    commit.classes(
        __name__, [one for one in load_workloads().all_workloads() if "attention" not in one.kernel]
    )
)
