"""Utilization from the best instrument that may be used here, with its name beside the value.

Tiers, best first: ``ncu`` (hardware counters), ``gpm`` (the driver's sampling), then what needs no
counter at all: the share of the peak at the clock of the samples (``latency``), the share of the
datasheet's peak (derived in reports), and the compiled bound. Tiers are never compared.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.instruments import ncu, session
from benchmarks.instruments.outcome import Outcome
from benchmarks.instruments.session import Report, Session

TIERS = ("ncu", "gpm", "latency", "datasheet", "compiled")
SECONDS_EACH = 180.0

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Readings:
    """``outcomes`` by workload, all from one ``tier``; ``why`` the better tiers were not used."""

    tier: str
    outcomes: dict[str, Outcome]
    why: str = ""


def read(
    workloads: Sequence[str],
    tell: Tell,
    report: Report | None = None,
    until: float | None = None,
) -> Readings:
    """Counters of ``workloads`` from the best tier. ``tell`` gets one line if a tier is missing.
    No workload is begun that would end after ``until`` (a time of ``time.time``)."""
    try:
        return Readings("ncu", by_ncu(workloads, report, None, until))
    except (ncu.CountersRefusedError, ValueError) as refused:
        tell(f"no hardware counters, the driver's sampling instead: {refused}")
        sampled = Session(_request("sampled", until), seconds_each=SECONDS_EACH)
        outcomes = sampled.run(workloads, report)
        why = str(refused)
    if any(outcome.status == "ok" for outcome in outcomes.values()):
        return Readings("gpm", outcomes, why)
    details = sorted({outcome.detail for outcome in outcomes.values() if outcome.detail})
    tell(f"no sampling either, utilization is a share of the peak: {'; '.join(details)[:300]}")
    return Readings("latency", {}, "; ".join([why, *details]))


def by_ncu(
    workloads: Sequence[str],
    report: Report | None = None,
    environment: Mapping[str, str] | None = None,
    until: float | None = None,
) -> dict[str, Outcome]:
    """One profiled process over all workloads. One that hangs costs another process: ``ncu`` is
    ended with it before it writes anything, so the others are counted again."""
    combined: dict[str, Outcome] = {}
    left = list(workloads)
    with tempfile.TemporaryDirectory() as folder:
        for attempt in range(len(left)):
            log = Path(folder) / f"counters-{attempt}.csv"
            profiled = Session(
                _request("counters", until),
                seconds_each=SECONDS_EACH,
                wrap=ncu.command(log),
                environment=environment,
            )
            outcomes = profiled.run_once(left, report)
            text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
            text += profiled.errors
            combined |= _counted(outcomes, text)
            left = [name for name in left if name not in combined]
            if not left:
                break
    return combined


def _counted(outcomes: dict[str, Outcome], text: str) -> dict[str, Outcome]:
    """What one process and its log say of whom."""
    if "ERR_NVGPUCTRPERM" in text:
        ncu.parse(text)
    *_, last = outcomes.values()
    if last.status == "hung":
        return {last.workload: last}
    if not any(outcome.evidence.get("marks") for outcome in outcomes.values()):
        return outcomes
    if session.died(last):
        # It made marks that it could not tell of: they are the last in the log.
        told = sum(int(outcome.evidence.get("marks", 0)) for outcome in outcomes.values())
        marks = max(0, len(ncu.calls(ncu.parse(text))) - told)
        outcomes = {**outcomes, last.workload: replace(last, evidence={"marks": marks})}
    return ncu.combine(outcomes, text)


def _request(mode: str, until: float | None) -> dict[str, Any]:
    return {"mode": mode} if until is None else {"mode": mode, "until": until}
