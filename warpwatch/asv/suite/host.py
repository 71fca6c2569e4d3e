"""asv's benchmark of host overhead: what one call costs the CPU until it is queued.

Host code runs against a driver that only records launches, so any machine measures it.
"""

from __future__ import annotations

from typing import Any

from warpwatch.config import isolation, metrics
from warpwatch.config.package import load as load_package
from warpwatch.config.package import workloads as load_workloads
from warpwatch.instruments.gpu import host
from warpwatch.session.commit import Cache
from warpwatch.workload.base import Workload

from .measured import tracker


def classes(module: str) -> dict[str, type]:
    """Make the benchmark class of host overhead.

    Args:
        module: The name of asv's module that the class is to belong to.

    Returns:
        The class by its name, over the workloads of ``host`` in ``[sets]``; ``*`` there means all.
        Nothing where none is named: host time needs a quiet machine.
    """
    chosen = set(load_package().sets.host)
    found: list[Workload] = [
        one for one in load_workloads().all_workloads() if {"*", one.name} & chosen
    ]
    if not found:
        return {}

    def setup_cache(self: Any) -> Cache:
        isolation.measured()
        return host.measure([workload.name for workload in found])

    setup_cache.timeout = 300  # type: ignore[attr-defined]  # asv reads it
    body = {
        "__doc__": "What one call costs the host.",
        "__module__": module,
        "timeout": 60,
        "params": [[workload.name for workload in found]],
        "param_names": ("workload",),
        "setup_cache": setup_cache,
        "track_host_us": tracker(metrics.get("host_us"), found),
    }
    return {"Host": type("Host", (), body)}
