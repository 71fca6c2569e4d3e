"""Everything the GPU instruments say of one commit, measured once."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from warpwatch.config import isolation, metrics, sharding
from warpwatch.config.package import load as load_package
from warpwatch.config.package import workloads as load_workloads
from warpwatch.instruments import presence
from warpwatch.instruments.counters import rocprof
from warpwatch.instruments.gpu import accuracy, cold_start, evidence, host, latency, off_kernel
from warpwatch.instruments.outcome import Outcome
from warpwatch.instruments.peers import registry as peers

from . import series_versions, utilization
from .session import Session, compile_ahead, make_ready
from .unfinished import Unfinished

# A GPU second is dear: ``history`` measures a subset that takes some seventy seconds a commit.
SET_VARIABLE = "WARPWATCH_GPU_SET"
Cache = dict[str, dict[str, Any]]

# asv ends a ``setup_cache`` that takes longer: what the last call may take is left of it.
SETUP_SECONDS = 1800
_TIMING_SECONDS = 1400.0
_COUNTER_SECONDS = SETUP_SECONDS - 1.25 * utilization.SECONDS_EACH

COLD_START = ("import_s", "first_call_s", "first_compile_s")
# Which instrument reads a metric, and the hash of its method.
INSTRUMENTS: dict[str, tuple[str, str]] = {
    "latency_cold": ("latency", series_versions.TIMES),
    "latency_warm": ("latency", series_versions.TIMES),
    "peak_share": ("latency", series_versions.SHARES),
    "tensor_pipe": ("cupti", series_versions.COUNTED),
    "sm_cycles": ("cupti", series_versions.COUNTED),
    "kernel_cycles": ("cupti", series_versions.COUNTED),
    "off_kernel_us": ("cupti", series_versions.OFF_KERNEL),
    "instructions": ("cupti", series_versions.COUNTED),
    "dram_bytes": ("cupti", series_versions.COUNTED),
    "tensor_pipe_sampled": ("gpm", series_versions.SAMPLED),
    "peak_bytes": ("allocator", series_versions.BYTES),
    "relative_error": ("accuracy", accuracy.METHOD_VERSION),
    "host_us": ("host", host.METHOD_VERSION),
    **dict.fromkeys(COLD_START, ("cold start", cold_start.METHOD_VERSION)),
}
# Who reads them with torch for AMD. asv's description of a benchmark is one for all machines and
# keeps what it says above: what measured a commit stands in its evidence.
_ON_HIP = dict.fromkeys(("tensor_pipe", "instructions"), ("rocprofv3", rocprof.METHOD_VERSION))
# What a GPU is needed for; a history has the note of latency's for launch gaps.
_NO_GPU = ("host_us", *COLD_START, "unheld")
MEASURED = tuple(one for one in metrics.MEASURED if one.name not in _NO_GPU)


def wanted(names: Sequence[str]) -> list[str]:
    """Those of ``names`` this run measures: all, or the history subset."""
    if _chosen_set() != "history":
        return list(names)
    sets = load_package().sets
    if not sets.history:
        return list(names)
    return [name for name in names if name in {*sets.history, *sets.history_peers}]


def _chosen_set() -> str:
    chosen = os.environ.get(SET_VARIABLE, "full")
    if chosen not in ("full", "history", "peers"):
        raise ValueError(f"{SET_VARIABLE}={chosen!r}: expected full, history or peers")
    return chosen


def canaries() -> list[peers.PeerWorkload]:
    """Peers' workloads that every commit measures beside its own."""
    sets = load_package().sets
    return [one for one in _beside(sets.canaries) if one.peer.name in sets.canary_peers]


def peers_measured() -> list[peers.PeerWorkload]:
    """Peers' workloads that this run measures: the canaries, or those of every workload where
    ``WARPWATCH_GPU_SET=peers``."""
    if _chosen_set() != "peers":
        return canaries()
    sets = load_package().sets
    if unknown := sorted({*sets.peers, *sets.canary_peers} - {*peers.names()}):
        known = " ".join(peers.names())
        raise ValueError(f"[sets] names the peer {unknown[0]!r}: expected some of {known}")
    watched = {one.name for one in canaries()}
    return [
        one
        for one in _beside()
        if one.name in watched or not sets.peers or one.peer.name in sets.peers
    ]


def _beside(only: Sequence[str] | None = None) -> list[peers.PeerWorkload]:
    """Every peer of every workload, or of those that ``only`` names."""
    return [
        peer
        for workload in load_workloads().all_workloads()
        if only is None or workload.name in only
        for peer in peers.next_to(workload)
    ]


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
    session = Session({**request, "until": begin + _TIMING_SECONDS}, stays=True)
    kept = Unfinished(methods)
    try:
        missing = kept.missing(names)
        make_ready([session], lambda: compile_ahead(session.request, missing))
        timed = kept.run(session, names, report)
        # Counters explain our kernels and watch the machine: of other peers the time is enough.
        counted_too = {one.name for one in canaries()}
        right = [
            name
            for name, outcome in timed.items()
            if outcome.status == "ok" and (peers.SEPARATOR not in name or name in counted_too)
        ]
        readings = utilization.Readings("", {})
        if right:
            readings = utilization.read(right, say, None, begin + _COUNTER_SECONDS, session)
    finally:
        session.discard()
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
    instruments = INSTRUMENTS | (_ON_HIP if utilization.on_hip() else {})
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
        mhz = timed.evidence.get("latency_cold", {}).get("mhz")
        found = off_kernel.of(samples.get("latency_cold", ()), mhz, counted.samples)
        samples |= {name: list(row) for name, row in found.items()}
        if counted.status != "ok":
            detail = "; ".join(filter(None, [detail, f"counters: {counted.detail}"]))
    return {"status": timed.status, "detail": detail, "samples": samples}
