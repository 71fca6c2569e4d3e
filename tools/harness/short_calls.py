"""Whether short calls read the same on every machine: identical code, measured on several.

    python -m tools.harness.record_noise --commit HASH --short --runs 12 --out ONE.json
    python -m tools.harness.short_calls ONE.json TWO.json THREE.json

The first command runs on each machine. The second prints, for each short call, the series
that judges it: the median of each machine, how far these lie apart, and how far the times do.
Exits 1 where a deciding series differs by more than 2 %.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from warpwatch.commands.results.report import default_results
from warpwatch.config import package as configuration
from warpwatch.judge.model.directions import Directions
from warpwatch.judge.model.short_calls import CYCLES, NEWEST, SHORT_US, TIME
from warpwatch.judge.results.assembly import assemble
from warpwatch.judge.results.folders import list_folders, read_folders
from warpwatch.judge.results.processes import Workers

MOST = 0.02


def main() -> int:
    """Exit 0 where all agree, 1 where a machine differs by more."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.harness.short_calls",
        description="compare recordings of one commit, of several machines",
    )
    parser.add_argument("recordings", type=Path, nargs="+", metavar="FILE")
    files = parser.parse_args().recordings
    table, worst = compared([json.loads(one.read_text(encoding="utf-8")) for one in files])
    print("\n".join(table))
    return int(worst > MOST)


def known() -> list[str]:
    """The workloads that the published results know as short."""
    folders = [one for one in default_results() if one.is_dir()]
    with Workers() as workers:
        results = read_folders(folders, list_folders(folders), workers)
    history = assemble(results, configuration.load().repository_path, Directions())
    ours = {workload.name for workload in configuration.workloads().all_workloads()}
    short = []
    for table in history.tables:
        for row, info in enumerate(table.series):
            if info.meaning.metric != TIME or info.target or info.workload not in ours:
                continue
            newest = [one for one in table.values[row].tolist() if one == one and one > 0][-NEWEST:]
            if newest and statistics.median(newest) < SHORT_US:
                short.append(info.workload)
    return sorted(short)


def compared(recordings: list[dict[str, Any]]) -> tuple[list[str], float]:
    """The table, and the largest difference of a deciding series between two machines."""
    out = [f"{'workload':<44}{'decides':<15}{'each machine':<30}{'apart':>8}{'time apart':>12}"]
    worst = 0.0
    for name in recordings[0]["latency_us"]:
        times = [_middle(one["latency_us"][name]) for one in recordings]
        if not all(time < SHORT_US for time in times):
            out.append(f"{name:<44}is no short call here: {min(times):.1f} us and more")
            continue
        counted = all(name in one.get(CYCLES, {}) for one in recordings)
        rows = [one[CYCLES if counted else "latency_us"][name] for one in recordings]
        values = [_middle(row) for row in rows]
        apart = max(values) / min(values) - 1
        worst = max(worst, apart)
        each = " ".join(f"{value:.5g}" for value in values)
        out.append(f"{name:<44}{CYCLES if counted else TIME:<15}{each:<30}{apart:>8.2%}"
                   f"{max(times) / min(times) - 1:>12.2%}")  # fmt: skip
    machines = "1 machine" if len(recordings) == 1 else f"{len(recordings)} machines"
    out.append(f"{machines}: the series that decide lie {worst:.2%} apart at most")
    return out, worst


def _middle(row: list[float | None]) -> float:
    return statistics.median(one for one in row if one is not None)


if __name__ == "__main__":
    sys.exit(main())
