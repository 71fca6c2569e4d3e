"""asv's benchmarks of the host: what one call costs the CPU until it is queued, and what a process
pays before its first result.

Host code runs against a driver that only records launches, so any machine measures it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from warpwatch.config import isolation, metrics, sharding
from warpwatch.config.package import load as load_package
from warpwatch.config.package import workloads as load_workloads
from warpwatch.instruments.gpu import cold_start, host
from warpwatch.session.commit import COLD_START, Cache
from warpwatch.workload.base import Workload

from .measured import tracker

Read = Callable[[Sequence[str]], Cache]


def classes(module: str) -> dict[str, type]:
    """Make the benchmark classes of the host.

    Args:
        module: The name of asv's module that the classes are to belong to.

    Returns:
        The classes by their names, over the workloads of ``host`` in ``[sets]``; ``*`` there means
        all. Nothing where none is named: host time needs a quiet machine.
    """
    chosen = set(load_package().sets.host)
    found: list[Workload] = [
        one for one in load_workloads().all_workloads() if {"*", one.name} & chosen
    ]
    if not found:
        return {}
    call = _class("Host", "What one call costs the host.", module, found, host.measure, ["host_us"])
    first = "What a process pays before its first result."
    start = _class("ColdStart", first, module, found, cold_start.measure, COLD_START)
    return {"Host": call, "ColdStart": start}


def _class(
    name: str, said: str, module: str, found: list[Workload], read: Read, names: Sequence[str]
) -> type:
    def setup_cache(self: Any) -> Cache:
        isolation.measured()
        return read(sharding.chosen([workload.name for workload in found]))

    setup_cache.timeout = 300  # type: ignore[attr-defined]  # asv reads it
    body = {
        "__doc__": said,
        "__module__": module,
        "timeout": 60,
        "params": [[workload.name for workload in found]],
        "param_names": ("workload",),
        "setup_cache": setup_cache,
    }
    sources = load_package().path
    body |= {f"track_{one}": tracker(metrics.get(one), found, sources) for one in names}
    return type(name, (), body)
