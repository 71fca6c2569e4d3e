"""Measures one commit again and again in fresh processes: the noise the scorecard resamples.

    python -m tools.harness.record_noise --commit HASH --out FILE [--runs N] [--seconds S]

Writes a file of ``warpwatch/judge/recorded``: the median cold latency of each process, workload
by workload. What was measured when the time is up is kept.
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
from pathlib import Path
from typing import Any

from warpwatch.config.package import workloads as load_workloads
from warpwatch.session.session import Session, make_ready

WORKLOADS = (
    "attention-bf16-B4-S4096-H16-D128-causal",
    "attention-fp16-B4-S2048-H8-D64",
    "matmul-fp16-4096x4096x4096",
    "matmul-bf16-16x4096x4096-nt",
)
REQUEST = {"mode": "latency", "methods": ["cold"]}
# Processes that are ready, contexts and all, before the first of them measures: a context that is
# made while another process measures would be in its samples.
TOGETHER = 20


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
    args = parser.parse_args()
    names = [load_workloads().get(name).name for name in args.workload or WORKLOADS]
    runs, card = record(names, args.runs, args.seconds)
    if not runs:
        return 3
    args.out.write_text(json.dumps(document(args.commit, names, runs, card), indent=1) + "\n")
    print("\n".join(lines(names, runs)))
    return 0


def record(
    names: list[str], count: int, seconds: float, request: dict[str, Any] | None = None
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A row a process: when it began, and latency and clock by workload (None: no right answer).

    Processes are fresh and measure one at a time, with nothing else going on.
    """
    began = time.monotonic()
    waiting: deque[Session] = deque()
    rows: list[dict[str, Any]] = []
    card: dict[str, Any] = {}
    try:
        while len(rows) < count and time.monotonic() - began < seconds:
            if not waiting:
                together = range(min(TOGETHER, count - len(rows)))
                waiting.extend(Session(request or REQUEST) for _ in together)
                make_ready(waiting)
            session = waiting.popleft()
            row: dict[str, Any] = {"started_s": round(time.monotonic() - began, 1)}
            for name, outcome in session.run(names).items():
                samples = outcome.samples.get("latency_cold")
                mhz = outcome.evidence.get("latency_cold", {}).get("mhz")
                row[name] = (statistics.median(samples) if samples else None, mhz)
                if outcome.status != "ok":
                    print(f"{name}: {outcome.status}, {outcome.detail}", file=sys.stderr)
            card = session.card or card
            rows.append(row)
            if len(rows) % 10 == 0:
                print(f"{len(rows)} runs, {time.monotonic() - began:.0f} s", file=sys.stderr)
    finally:
        for session in waiting:
            session.discard()
    return rows, card


def document(
    commit: str, names: list[str], rows: list[dict[str, Any]], card: dict[str, Any]
) -> dict[str, Any]:
    software = card.get("software", {})
    return {
        "schema_version": 1,
        "what": "one commit, measured again and again in fresh processes: cold latency, the "
        "median of each process",
        "device": f"{card.get('name')}, driver {card.get('driver')}, clocks free",
        "software": f"Python {platform.python_version()}, torch {software.get('torch')}, "
        f"Triton {software.get('triton')}",
        "commit": commit,
        "recorded": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "started_s": [row["started_s"] for row in rows],
        "latency_us": {name: [_us(row[name][0]) for row in rows] for name in names},
        "sm_clock_mhz": {name: [_us(row[name][1]) for row in rows] for name in names},
        "how": "python -m tools.harness.record_noise",
    }


def _us(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def lines(names: list[str], rows: list[dict[str, Any]]) -> list[str]:
    out = [f"{len(rows)} runs in {rows[-1]['started_s']:.0f} s"]
    for name in names:
        values = [row[name][0] for row in rows if row[name][0] is not None]
        if values:
            middle = statistics.median(values)
            spread = 1.4826 * statistics.median(abs(value - middle) for value in values) / middle
            out.append(f"{name:<48}{middle:>10.2f} us  spread {spread:.2%}  {len(values)} runs")
    return out


if __name__ == "__main__":
    sys.exit(main())
