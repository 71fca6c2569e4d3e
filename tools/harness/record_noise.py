"""Measures one commit again and again in fresh processes: the noise the scorecard resamples.

    python -m tools.harness.record_noise --commit HASH --out FILE [--runs N] [--seconds S] [--short]

Writes a file of ``warpwatch/judge/recorded``: the median cold latency of each process, workload
by workload. What was measured when the time is up is kept. ``--short`` measures the short calls
as ``compare`` does, with the cycles that judge them.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import statistics
import sys
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tools.harness import short_calls
from warpwatch.config.package import workloads as load_workloads
from warpwatch.instruments.outcome import Outcome
from warpwatch.session.residents import LIMITS
from warpwatch.session.session import Session, make_ready

WORKLOADS = (
    "attention-bf16-B4-S4096-H16-D128-causal",
    "attention-fp16-B4-S2048-H8-D64",
    "matmul-fp16-4096x4096x4096",
    "matmul-bf16-16x4096x4096-nt",
)
REQUEST = {"mode": "latency", "methods": ["cold"]}
COUNTED = {"mode": "staying", "limits": LIMITS}
COUNTERS = ("kernel_cycles", "sm_cycles", "off_kernel_us")
# Processes that are ready, contexts and all, before the first of them measures: a context that is
# made while another process measures would be in its samples.
TOGETHER = 20

Reading = dict[str, list[float]]  # samples by metric, and "mhz": what one process says of a call


def main() -> int:
    """Exit 0 if all runs were made, 3 if none."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.harness.record_noise",
        description="measure one commit again and again in fresh processes",
    )
    parser.add_argument("--commit", required=True, help="of this checkout, whose noise it is")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--workload", action="append", default=[], metavar="NAME")
    parser.add_argument("--short", action="store_true", help="short calls, and their cycles")
    args = parser.parse_args()
    usual = short_calls.known() if args.short else WORKLOADS
    names = [load_workloads().get(name).name for name in args.workload or usual]
    runs, card = record(names, args.runs, args.seconds, COUNTED if args.short else REQUEST)
    if not runs:
        return 3
    args.out.write_text(json.dumps(document(args.commit, names, runs, card), indent=1) + "\n")
    print("\n".join(lines(names, runs)))
    return 0


def record(
    names: list[str], count: int, seconds: float, request: dict[str, Any]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A row a process: when it began, and what it says of each workload (nothing: no right answer).

    Processes are fresh and measure one at a time, with nothing else going on.
    """
    began = time.monotonic()
    waiting: deque[Session] = deque()
    rows: list[dict[str, Any]] = []
    card: dict[str, Any] = {}
    stays = request["mode"] == "staying"
    try:
        while len(rows) < count and time.monotonic() - began < seconds:
            if not waiting:
                together = range(min(TOGETHER, count - len(rows)))
                waiting.extend(Session(request, stays=stays) for _ in together)
                make_ready(waiting)
                if stays:
                    _prepare(list(waiting), names)
            session = waiting.popleft()
            row: dict[str, Any] = {"started_s": round(time.monotonic() - began, 1)}
            for name, outcome in session.run(names).items():
                row[name] = _reading(outcome)
                if outcome.status != "ok":
                    print(f"{name}: {outcome.status}, {outcome.detail}", file=sys.stderr)
            card = session.card or card
            session.discard()
            rows.append(row)
            if len(rows) % 10 == 0:
                print(f"{len(rows)} runs, {time.monotonic() - began:.0f} s", file=sys.stderr)
    finally:
        for session in waiting:
            session.discard()
    return rows, card


def _prepare(sessions: list[Session], names: list[str]) -> None:
    """Each process makes its inputs and loads its kernels, all at once: none of them is timed yet.
    A kernel that is not compiled is compiled by one of them, and found on disk by the others."""

    def ready(session: Session, share: list[str]) -> None:
        session.request["steps"] = ["ready"]
        session.run(share)
        session.request["steps"] = ["time", "count"]

    shares = [names[first :: len(sessions)] for first in range(len(sessions))]
    with ThreadPoolExecutor(len(sessions)) as pool:
        list(pool.map(ready, sessions, shares))
        list(pool.map(ready, sessions, [names] * len(sessions)))


def _reading(outcome: Outcome) -> Reading:
    mhz = outcome.evidence.get("latency_cold", {}).get("mhz")
    kept = ("latency_cold", *COUNTERS)
    found = {name: list(outcome.samples[name]) for name in kept if name in outcome.samples}
    return found | ({"mhz": [mhz]} if mhz is not None else {})


def document(
    commit: str, names: list[str], rows: list[dict[str, Any]], card: dict[str, Any]
) -> dict[str, Any]:
    software = card.get("software", {})
    found = {
        "schema_version": 1,
        "what": "one commit, measured again and again in fresh processes: the median of each",
        "device": f"{card.get('name')}, driver {card.get('driver')}, clocks free",
        "software": f"Python {platform.python_version()}, torch {software.get('torch')}, "
        f"Triton {software.get('triton')}",
        "commit": commit,
        "recorded": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "started_s": [row["started_s"] for row in rows],
        "latency_us": _medians(names, rows, "latency_cold"),
        "sm_clock_mhz": _medians(names, rows, "mhz"),
        "how": "python -m tools.harness.record_noise",
    }
    for metric in COUNTERS:
        medians = _medians(names, rows, metric)
        if any(value is not None for row in medians.values() for value in row):
            found[metric] = medians
    return found


def _medians(
    names: list[str], rows: list[dict[str, Any]], metric: str
) -> dict[str, list[float | None]]:
    return {name: [_median(row.get(name, {}).get(metric)) for row in rows] for name in names}


def _median(values: list[float] | None) -> float | None:
    return round(statistics.median(values), 3) if values else None


def lines(names: list[str], rows: list[dict[str, Any]]) -> list[str]:
    out = [f"{len(rows)} runs in {rows[-1]['started_s']:.0f} s"]
    for metric, unit in (("latency_cold", "us"), ("kernel_cycles", "cycles")):
        for name, row in _medians(names, rows, metric).items():
            values = [value for value in row if value is not None]
            if values:
                said = f"{statistics.median(values):>10.2f} {unit:<7} spread {spread(values):.2%}"
                out.append(f"{name:<48}{said}  {len(values)} runs")
    return out


def spread(values: list[float]) -> float:
    """The robust deviation over the median."""
    middle = statistics.median(values)
    return 1.4826 * statistics.median(abs(value - middle) for value in values) / middle


if __name__ == "__main__":
    sys.exit(main())
