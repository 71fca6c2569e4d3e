"""Everything the GPU instruments say of one commit, measured once, and asv's view of it.

asv runs each benchmark and parameter in a process of its own; these only hand out values from the
cache that one ``setup_cache`` made. Without a GPU the cache is empty and every value NaN, which is
asv's word for *not applicable*.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import devices, isolation, metrics, sharding
from benchmarks.configuration import load as load_package
from benchmarks.configuration import workloads as load_workloads
from benchmarks.instruments import (
    accuracy,
    counters,
    evidence,
    host,
    latency,
    peers,
    presence,
    rocprof,
    series_versions,
)
from benchmarks.instruments.outcome import Outcome
from benchmarks.instruments.roofs import roofs
from benchmarks.instruments.session import Session
from benchmarks.instruments.unfinished import Unfinished
from benchmarks.workloads.base import Workload
from benchmarks.workloads.written_out import formula_bytes

# A GPU second is dear: ``history`` measures a subset that takes some seventy seconds a commit.
SET_VARIABLE = "WARPWATCH_GPU_SET"
HISTORY = (
    "sdpa-fp16-B12-S256-H64-D64",
    "attention-bf16-B32-S512-H32-D64",
    "attention-bf16-B32-S512-H32-D64-causal",
    "attention-fp16-B4-S4096-H8-D64",
    "attention-bf16-B2-S4096-H32-D128",
    "attention-bf16-B2-S4096-H16-D256",
    "attention-bf16-B4-S4096-H16-D128-causal",
    "attention-bf16-B1-S8192-H32-G8-D128-causal-window4096",
    "attention-backward-bf16-B4-S4096-H32-D64-causal",
    "attention-backward-bf16-B4-S4096-H16-D128-causal",
    "attention-backward-bf16-B4-S4096-H8-D256-causal",
    "attention-backward-bf16-B1-S8192-H32-G8-D128-causal-window4096",
    "attention-varlen-backward-bf16-even-H32-G8-D128-causal",
    "attention-training-bf16-B4-S4096-H16-D128-causal",
    "attention-training-bf16-B4-S4096-H16-D128-causal-sink",
    "attention-training-bf16-B4-S4096-H32-D64-causal-sink",
    "attention-fp8-B4-S4096-H16-D128",
    "attention-kvcache-bf16-B16-S1-KV4096-H32-G8-D128-page64-causal",
    "attention-kvcache-bf16-B1-S1-KV16384-H32-G8-D128-page64-causal",
    "matmul-fp16-1000x1000x1000",
    "matmul-fp16-1024x1024x1024",
    "matmul-fp16-4096x4096x4096",
    "matmul-bf16-4096x6144x4096-nt",
    "matmul-bf16-4096x28672x4096-nt",
    "matmul-bf16-4096x14336x4096-nt-bias-silu",
    "matmul-bf16-16x4096x4096-nt",
    "matmul-bf16-64x4096x4096-nt",
    "matmul-fp16-2048x2048x2048-bias-gelu",
    "matmul-fp8-16x4096x4096-nt-tensor",
    "matmul-fp8-4096x4096x4096-nt-tensor",
    "matmul-fp8-4096x7168x2048-nt-blocks",
)
# Peers no commit of ours changes: one that moves says that the machine changed.
CANARIES = (
    "attention-bf16-B2-S4096-H64-D64",
    "attention-bf16-B2-S4096-H32-D128",
    "attention-bf16-B4-S4096-H16-D128-causal",
    "matmul-fp16-1024x1024x1024",
    "matmul-fp16-4096x4096x4096",
)
CANARY_PEERS = ("torch-flash", "torch-cudnn", "cublas")
HISTORY_PEERS = (
    "attention-bf16-B2-S4096-H32-D128 @ torch-cudnn",
    "matmul-fp16-4096x4096x4096 @ cublas",
)

Cache = dict[str, dict[str, Any]]

# asv ends a ``setup_cache`` that takes longer: what the last call may take is left of it.
SETUP_SECONDS = 1800
_TIMING_SECONDS = 1400.0
_COUNTER_SECONDS = SETUP_SECONDS - 1.25 * counters.SECONDS_EACH

# Which instrument reads a metric, and the hash of its method.
INSTRUMENTS: dict[str, tuple[str, str]] = {
    "latency_cold": ("latency", series_versions.TIMES),
    "latency_warm": ("latency", series_versions.TIMES),
    "peak_share": ("latency", series_versions.SHARES),
    "tensor_pipe": ("ncu", series_versions.COUNTED),
    "sm_cycles": ("ncu", series_versions.COUNTED),
    "instructions": ("ncu", series_versions.COUNTED),
    "dram_bytes": ("ncu", series_versions.COUNTED),
    "tensor_pipe_sampled": ("gpm", series_versions.SAMPLED),
    "peak_bytes": ("allocator", series_versions.BYTES),
    "relative_error": ("accuracy", accuracy.METHOD_VERSION),
    "host_us": ("host", host.METHOD_VERSION),
}
# Who reads them with torch for AMD. asv's description of a benchmark is one for all machines and
# keeps what it says above: what measured a commit stands in its evidence.
_ON_HIP = dict.fromkeys(("tensor_pipe", "instructions"), ("rocprofv3", rocprof.METHOD_VERSION))
# What a GPU is needed for; a history has the note of latency's for launch gaps.
MEASURED = tuple(one for one in metrics.MEASURED if one.name not in ("host_us", "unheld"))


def wanted(names: Sequence[str]) -> list[str]:
    """Those of ``names`` this run measures: all, or the history subset."""
    chosen = os.environ.get(SET_VARIABLE, "full")
    if chosen not in ("full", "history"):
        raise ValueError(f"{SET_VARIABLE}={chosen!r}: expected full or history")
    if chosen == "full":
        return list(names)
    return [name for name in names if name in HISTORY or name in HISTORY_PEERS]


def canaries() -> list[peers.PeerWorkload]:
    """Peers' workloads that every commit measures beside its own."""
    return [
        peer
        for workload in load_workloads().all_workloads()
        if workload.name in CANARIES
        for peer in peers.beside(workload)
        if peer.peer.name in CANARY_PEERS
    ]


class Measured:
    """What asv's classes inherit: one ``setup_cache``, so that one run serves all of them."""

    timeout = 60

    def setup_cache(self) -> Cache:
        found = [*load_workloads().all_workloads(), *canaries()]
        return measure([workload.name for workload in found])

    setup_cache.timeout = SETUP_SECONDS  # type: ignore[attr-defined]  # asv reads it


def measure(names: Sequence[str]) -> Cache:
    """Measure the commit that can be imported now; ``{}`` without a GPU."""
    isolation.measured()
    everything = [workload.name for workload in load_workloads().all_workloads()]
    names = sharding.measured_here(wanted(names), everything)
    if not names or not presence.has_gpu():
        return {}

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def report(outcome: Outcome) -> None:
        say(f"{outcome.workload}: {outcome.status}" + f" {outcome.detail}".rstrip())

    begin = time.time()
    # The report takes what these list as all that was asked for of them.
    methods = _methods()
    request = {"mode": "latency", "methods": list(latency.METHODS)}
    session = Session({**request, "until": begin + _TIMING_SECONDS})
    kept = Unfinished(methods)
    timed = kept.run(session, names, report)
    right = [name for name, outcome in timed.items() if outcome.status == "ok"]
    until = begin + _COUNTER_SECONDS
    readings = counters.read(right, say, None, until) if right else counters.Readings("", {})
    counted = readings.outcomes
    tried = {name: one for name, one in timed.items() if one.status != "not tried"}
    # asv throws away what a ``setup_cache`` that went well says: ``history`` and the report say it.
    counters_by = (readings.tier, readings.why)
    evidence.write(tried, counted, session.card, methods, *counters_by, session.ceilings)
    if len(tried) == len(timed):
        kept.finish()
    return {name: _row(outcome, counted.get(name)) for name, outcome in timed.items()}


def _methods() -> dict[str, str]:
    """The version of each instrument, and of each metric that has one of its own."""
    instruments = INSTRUMENTS | (_ON_HIP if counters.on_hip() else {})
    found: dict[str, str] = {}
    for metric in MEASURED:
        instrument, version = instruments[metric.name]
        if found.setdefault(instrument, version) != version:
            found[metric.name] = version
    return found


def _row(timed: Outcome, counted: Outcome | None) -> dict[str, Any]:
    samples = {name: list(row) for name, row in timed.samples.items()}
    detail = timed.detail
    if counted is not None:
        samples |= {name: list(row) for name, row in counted.samples.items()}
        if counted.status != "ok":
            detail = "; ".join(filter(None, [detail, f"counters: {counted.detail}"]))
    return {"status": timed.status, "detail": detail, "samples": samples}


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


def tracker(metric: metrics.Metric, found: Sequence[Workload]) -> Callable[..., Any]:
    """An asv benchmark that hands out ``metric`` of each workload from the cache."""

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
        "sources": load_package().path,
        # Lists in the order of the parameter.
        "flops": [workload.flops for workload in found],
        "bytes_moved": [workload.bytes_moved for workload in found],
    }
    if metric.name == "latency_cold":
        # Enough to derive shares and rates from the one time that was measured.
        attributes |= roofs({name: devices.load(name) for name in devices.names()}, found)
        formulas = [formula_bytes(workload) for workload in found]
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
    for kernel, workloads in by_kernel.items():
        name = "".join(part.capitalize() for part in kernel.split("_"))
        body: dict[str, Any] = {
            "params": [list(workloads)],
            "param_names": ["workload"],
            "__doc__": f"{kernel} on a GPU.",
            "__module__": module,
        }
        for metric in MEASURED:
            if not only or metric.name in only:
                body[f"track_{metric.name}"] = tracker(metric, list(workloads.values()))
        made[name] = type(name, (Measured,), body)
    return made
