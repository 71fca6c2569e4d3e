"""asv's benchmarks of GPU metrics: classes made from workloads.

asv runs each benchmark and parameter in a process of its own; these only hand out values from the
cache that one ``setup_cache`` made. Without a GPU the cache is empty and every value NaN, which is
asv's word for *not applicable*.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

from warpwatch import devices
from warpwatch.config import metrics
from warpwatch.config.package import load as load_package
from warpwatch.config.package import workloads as load_workloads
from warpwatch.instruments.gpu.roofs import roofs
from warpwatch.session.commit import (
    INSTRUMENTS,
    MEASURED,
    SETUP_SECONDS,
    Cache,
    measure,
    peers_measured,
)
from warpwatch.workload.base import Workload

from .naming import ON_HOST, class_name, definitions, kernel_of


class Measured:
    """What asv's classes inherit: one ``setup_cache``, so that one run serves all of them."""

    timeout = 60

    def setup_cache(self) -> Cache:
        found = [*load_workloads().all_workloads(), *peers_measured()]
        return measure([workload.name for workload in found])

    setup_cache.timeout = SETUP_SECONDS  # type: ignore[attr-defined]  # asv reads it


def _handed_out(cache: Cache, workload: str, metric: str) -> Any:
    row = cache.get(workload)
    if row is None or row["status"] == "not applicable":
        return math.nan
    if row["status"] != "ok":
        # The value should be there: asv records a failure, the report says `missing`.
        print(row["detail"], file=sys.stderr)
        raise RuntimeError(row["detail"])
    samples = row["samples"].get(metric)
    return {"samples": samples, "number": 1} if samples else math.nan


def tracker(metric: metrics.Metric, found: Sequence[Workload], sources: str) -> Callable[..., Any]:
    """An asv benchmark that hands out ``metric`` of each workload from the cache. ``sources`` is
    the folder of the measured package."""

    def track(self: Any, cache: Cache, workload: str) -> Any:
        return _handed_out(cache, workload, metric.name)

    instrument, version = INSTRUMENTS[metric.name]
    track.__doc__ = metric.meaning
    attributes: dict[str, Any] = {
        "unit": metric.unit,
        "better": metric.better or "",
        "role": metric.role,
        "exact": metric.exact,
        "metric": metric.name,
        "instrument": instrument,
        "version": version,
        # A commit that does not touch this folder cannot have changed the code.
        "sources": sources,
        "kernel": kernel_of(found),
        # Lists in the order of the parameter.
        "flops": [workload.flops for workload in found],
        "bytes_moved": [workload.bytes_moved for workload in found],
        **definitions(found, on_gpu=instrument not in ON_HOST),
    }
    if metric.name == "latency_cold":
        # Enough to derive shares and rates from the one time that was measured.
        attributes |= roofs({name: devices.load(name) for name in devices.names()}, found)
        formulas = [workload.formula_bytes for workload in found]
        attributes |= {"formula_bytes": formulas} if any(formulas) else {}
    for name, value in attributes.items():
        setattr(track, name, value)
    return track


def classes(
    module: str, found: Sequence[Workload], only: Sequence[str] = ()
) -> dict[str, type[Measured]]:
    """One benchmark class a kernel, so that a workload added to the yardstick is measured."""
    by_kernel: dict[str, dict[str, Workload]] = {}
    for workload in found:
        by_kernel.setdefault(workload.kernel, {})[workload.name] = workload
    made: dict[str, type[Measured]] = {}
    sources = load_package().path
    for kernel, workloads in by_kernel.items():
        name = class_name(kernel)
        body: dict[str, Any] = {
            "params": [list(workloads)],
            "param_names": ["workload"],
            "__doc__": f"{kernel} on a GPU.",
            "__module__": module,
        }
        for metric in MEASURED:
            if not only or metric.name in only:
                body[f"track_{metric.name}"] = tracker(metric, list(workloads.values()), sources)
        made[name] = type(name, (Measured,), body)
    return made
