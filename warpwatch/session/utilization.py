"""Utilization from the best instrument that may be used here, with its name beside the value.

Tiers, best first: ``cupti`` (hardware counters, read in the process that timed), ``ncu`` (the same
in a process of its own; on AMD ``rocprofv3``, whose reader has not been run on a card of ours),
``gpm`` (the driver's sampling, NVIDIA's alone), then what needs no counter at all: the share of
the peak at the clock of the samples (``latency``), the share of the
datasheet's peak (derived in reports), and the compiled bound. Tiers are never compared.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from warpwatch import devices
from warpwatch.instruments.counters import ncu, range_profiler, rocprof
from warpwatch.instruments.outcome import Outcome

from . import session
from .session import Report, Session

SECONDS_EACH = 180.0
# A call is timed before it is counted, only to know whether it is short.
_TIMED = {"target": 0.02, "min_samples": 5, "max_samples": 15, "seconds": 0.2,
          "warm_up_seconds": 0.01}  # fmt: skip

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
    timed: Session | None = None,
) -> Readings:
    """Counters of ``workloads`` from the best tier. ``tell`` gets one line if a tier is missing.

    Args:
        workloads: Names.
        tell: Called with each line.
        report: Called with each outcome.
        until: A time of ``time.time``: no workload is begun that would end after it.
        timed: Whose worker timed them and stays: it may count as well.

    Returns:
        The outcomes and the tier that they are from.
    """
    if on_hip():
        return _read_on_hip(workloads, tell, report, until)
    if timed is not None:
        try:
            return Readings("cupti", by_cupti(timed, workloads, report, until))
        except ncu.CountersRefusedError as refused:
            tell(f"counters in a process of ncu, not in the one that timed: {refused}")
    try:
        found = by_ncu(workloads, report, None, until)
        unread = [one.detail for one in found.values() if one.detail.startswith(ncu.UNREAD)]
        if unread and not any(one.status == "ok" for one in found.values()):
            raise ncu.CountersRefusedError(unread[0])  # this card has no such counter
        return Readings("ncu", found)
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


def by_cupti(
    timed: Session,
    workloads: Sequence[str],
    report: Report | None = None,
    until: float | None = None,
) -> dict[str, Outcome]:
    """Counters in the process that timed, which is not started again.

    Args:
        timed: A session that stays, all of whose times are taken: counting makes its host slower.
        workloads: Names.
        report: Called with each outcome.
        until: A time of ``time.time``: no workload is begun that would end after it.

    Returns:
        The outcomes, with samples of counters only.

    Raises:
        CountersRefusedError: No workload could be counted; the message says why.
    """
    steps = {"steps": ["time", "count"], "limits": _TIMED}
    timed.request = {**timed.request, **_request("staying", until), **steps}
    found = timed.run(workloads, report)
    refused = [one.detail.partition(range_profiler.REFUSED)[2] for one in found.values()]
    counters = {
        name: _of_counters(one, why)
        for (name, one), why in zip(found.items(), refused, strict=True)
    }
    if any(refused) and not any(one.samples for one in counters.values()):
        raise ncu.CountersRefusedError(max(refused, key=bool))
    return counters


def _of_counters(outcome: Outcome, refused: str) -> Outcome:
    """What was counted, without the times; ``refused`` says why nothing was."""
    names = range_profiler.METRICS.values()
    samples = {name: row for name, row in outcome.samples.items() if name in names}
    if outcome.status == "ok" and not samples:
        return Outcome(outcome.workload, "failed", refused or "nothing was counted")
    return replace(outcome, samples=samples)


def on_hip() -> bool:
    """Whether torch is built for AMD's cards."""
    try:
        import torch
    except ImportError:
        return False
    return torch.version.hip is not None


def _read_on_hip(
    workloads: Sequence[str], tell: Tell, report: Report | None, until: float | None
) -> Readings:
    try:
        outcomes = by_rocprof(workloads, report, until)
    except (rocprof.RocprofError, ValueError) as refused:
        tell(f"no hardware counters, utilization is a share of the peak: {refused}")
        return Readings("latency", {}, str(refused))
    tell(f"hardware counters: {rocprof.UNPROVEN}")
    return Readings("rocprofv3", outcomes, rocprof.UNPROVEN)


def by_rocprof(
    workloads: Sequence[str], report: Report | None = None, until: float | None = None
) -> dict[str, Outcome]:
    """As :func:`by_ncu`, on AMD. Whatever ends the process takes the table with it: the others are
    counted again. ``RocprofError`` where nothing can be counted."""
    combined: dict[str, Outcome] = {}
    left = list(workloads)
    while left:
        with tempfile.TemporaryDirectory() as folder:
            profiled = Session(
                _request("dispatches", until),
                seconds_each=SECONDS_EACH,
                wrap=rocprof.command(Path(folder)),
            )
            outcomes = profiled.run_once(left, report)
            *_, last = outcomes.values()
            if last.status in ("hung", "device lost") or session.died(last):
                combined[last.workload] = last
            elif not any(outcome.evidence.get("marks") for outcome in outcomes.values()):
                combined |= outcomes
            else:
                name = str((profiled.card or {}).get("name"))
                device = devices.identify(name)
                if device is None:
                    raise rocprof.RocprofError(f"no datasheet says how many SIMDs a {name!r} has")
                combined |= rocprof.combine(outcomes, rocprof.table(Path(folder)), device)
        left = [name for name in left if name not in combined]
    return combined


def by_ncu(
    workloads: Sequence[str],
    report: Report | None = None,
    environment: Mapping[str, str] | None = None,
    until: float | None = None,
) -> dict[str, Outcome]:
    """One profiled process over all workloads. One that hangs, or takes ``ncu`` with it before its
    table is written, costs another process: the others are counted again.
    ``CountersRefusedError`` where ``ncu`` counts nothing."""
    if on_hip():
        raise ncu.CountersRefusedError("Nsight Compute reads no AMD card")
    combined: dict[str, Outcome] = {}
    left = list(workloads)
    in_vain = 0
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
            try:
                found = _counted(outcomes, text)
            except (ncu.CountersRefusedError, ValueError) as refused:
                if not profiled.unended:
                    raise
                why = f"ncu did not end after the last call, so it was ended: {refused}"
                raise ncu.CountersRefusedError(why) from None
            combined |= found
            left = [name for name in left if name not in combined]
            if not left:
                break
            in_vain = 0 if any(one.samples for one in found.values()) else in_vain + 1
            if in_vain == session.MAX_LOST:
                *_, last = found.values()
                why = f"{in_vain} processes of ncu in a row gave no counters: {last.detail}"
                raise ncu.CountersRefusedError(why)
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
        try:
            launches = ncu.parse(text)
        except (
            ncu.CountersRefusedError,
            ValueError,
        ):  # ncu ended with it: no table, or half of one
            return {last.workload: last}
        told = sum(int(outcome.evidence.get("marks", 0)) for outcome in outcomes.values())
        marks = max(0, len(ncu.calls(launches)) - told)
        outcomes = {**outcomes, last.workload: replace(last, evidence={"marks": marks})}
    return ncu.combine(outcomes, text)


def _request(mode: str, until: float | None) -> dict[str, Any]:
    return {"mode": mode} if until is None else {"mode": mode, "until": until}
