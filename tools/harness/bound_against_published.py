"""The compiled bound on utilization against the counters of every published commit.

    python -m tools.harness.bound_against_published [--plot FILE] [--keep FOLDER]

Compiles the workloads measured on the H200 at each commit, under the Triton they were measured
with, and prints how far below the bound they stayed. No GPU is needed. With ``--keep`` the evidence
of each commit goes to FOLDER, where the report finds bounds and machine code.
Commits share what they compile: a few minutes, and less where ``WARPWATCH_COMPILER_CACHE`` names a
folder that an earlier run filled.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tools.root import ROOT
from warpwatch.commands.gpu.bounds import Row, lines, scatter
from warpwatch.config.isolation import commit_hash
from warpwatch.config.package import CACHE_VARIABLE
from warpwatch.instruments.compiled.diff import sides
from warpwatch.instruments.compiled.measure import evidence, jobs

TRITON, TARGET = "3.6.0", "sm_90"
METRIC, TIMED = "track_tensor_pipe", "track_latency_cold"


def measured(file: Path, metric: str = METRIC) -> tuple[str, dict[str, float]]:
    """The commit of one of asv's result files, and what an instrument read by workload."""
    document = json.loads(file.read_text(encoding="utf-8"))
    found: dict[str, float] = {}
    for name, row in document["results"].items():
        cells = dict(zip(document["result_columns"], row, strict=False))
        if name.endswith(metric) and not name.startswith("peers.") and cells["result"]:
            values = zip(cells["params"][0], cells["result"], strict=True)
            found |= {key.strip("'"): value for key, value in values if value and value == value}
    return document["commit_hash"], found


def is_here(commit: str) -> bool:
    try:
        return bool(commit_hash(commit, ROOT))
    except ValueError:
        return False


def rows(file: Path, keep: Path | None = None) -> Iterator[Row]:
    """The bounds of what counters read, and the evidence of all that was timed in ``keep``."""
    commit, found = measured(file)
    names = dict.fromkeys([*found, *(measured(file, TIMED)[1] if keep else ())])
    asked = [jobs.Job(name, TARGET, is_workload=True) for name in names]
    kept = []
    with sides.opened(commit) as side:
        for job, result in jobs.measure(asked, side.environment):
            kept.append(result)
            bound = result.values.get("bound_utilization", math.nan)
            if job.name in found and math.isfinite(bound):
                yield Row(f"{commit[:8]} {job.name}", bound, found[job.name])
            elif job.name in found or result.status != "ok":
                why = result.detail or "without a tensor-core instruction there is no bound"
                print(f"{commit[:8]} {job.name}: {why}", file=sys.stderr)
    if keep is not None:
        evidence.store(keep, commit, sorted(kept, key=lambda one: one.workload))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.harness.bound_against_published",
        description="the compiled bound on utilization against the counters of published commits",
    )
    parser.add_argument("--plot", metavar="FILE", help="write the scatter as SVG")
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="write the evidence of every commit there"
    )
    arguments = parser.parse_args()
    folder = sides.triton_folder(TRITON)
    if folder is not None:
        inherited = os.environ.get("PYTHONPATH", "")
        os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), inherited])
        sys.path.insert(0, str(folder))  # evidence says which Triton and assembler made it
    files = sorted((ROOT / "reports" / "published" / "h200").glob("*-kernels-*.json"))
    absent = [file for file in files if not is_here(measured(file)[0])]
    if absent:
        print(f"left out: {len(absent)} commits whose sources are not here", file=sys.stderr)
    files = [file for file in files if file not in absent]
    if not files:
        print("error: no commit measured in reports/published is in this clone", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="compiled-") as kept:
        # Most kernels do not change from one commit to the next.
        os.environ.setdefault(CACHE_VARIABLE, kept)
        found = [row for file in files for row in rows(file, arguments.keep)]
    if arguments.plot:
        plain = [Row(row.workload.split()[1], row.bound, row.measured) for row in found]
        Path(arguments.plot).write_text(scatter(plain), encoding="utf-8")
    print("\n".join(lines(found)))
    return int(any(row.slack < 0 for row in found))


if __name__ == "__main__":
    sys.exit(main())
