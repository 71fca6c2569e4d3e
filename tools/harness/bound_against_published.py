"""The compiled bound on utilization against the counters of every published commit.

    python -m tools.harness.bound_against_published [--plot FILE] [--keep FOLDER]
                                                    [--predictions FILE [--again]]

Compiles the workloads measured on the H200 at each commit, under the Triton they were measured
with, and prints how far below the bound they stayed. No GPU is needed. With ``--keep`` the evidence
of each commit goes to FOLDER, where the report finds bounds and machine code. With
``--predictions`` the predicted times of all that was timed go to FILE, where the page of
predictions finds them. ``--again`` makes those in FILE again after a change of the model: calls of
one code and the same launches are compiled once, at the first commit that has them.
Commits share what they compile: a few minutes, and less where ``WARPWATCH_COMPILER_CACHE`` names a
folder that an earlier run filled.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import sys
import tempfile
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

from tools.docs.figures.prediction import calibration, times
from tools.root import ROOT
from warpwatch.commands.gpu.bounds import Row, lines, scatter
from warpwatch.config import metrics
from warpwatch.config.isolation import commit_hash
from warpwatch.config.package import CACHE_VARIABLE
from warpwatch.instruments.compiled.diff import sides
from warpwatch.instruments.compiled.measure import evidence, jobs
from warpwatch.instruments.compiled.measure.workload import Measurement

_EXPLAINING = [one.name for one in metrics.COMPILED if one.role == "verdict"]
TRITON, TARGET = "3.6.0", "sm_90"
METRIC, TIMED = "track_tensor_pipe", "track_latency_cold"

# Of a call by what stands for it, and which call a workload was at a commit.
Predictions = dict[str, dict[str, Any]]


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


def rows(
    file: Path,
    keep: Path | None = None,
    predictions: Predictions | None = None,
    only: Container[str] | None = None,
) -> Iterator[Row]:
    """The bounds of what counters read; of all that was timed the evidence in ``keep``, and the
    ``predictions``. ``only`` names readings that are wanted, where not all are."""
    commit, found = measured(file)
    timed = measured(file, TIMED)[1] if keep or predictions is not None else ()
    names = dict.fromkeys([*found, *timed])
    if only is not None:
        names = {name: None for name in names if f"{commit[:8]} {name}" in only}
    if not names:
        return
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
    if predictions is not None:
        for one in kept:
            if one.evidence.get("predicted"):
                call, said = predicted(one)
                predictions["calls"][call] = said
                predictions["readings"][f"{commit[:8]} {one.workload}"] = call
    if keep is not None:
        evidence.store(keep, commit, sorted(kept, key=lambda one: one.workload))


def predicted(result: Measurement) -> tuple[str, dict[str, object]]:
    """What stands for the code and the launches of one call, and what is predicted of them: clocks
    that SMs are at work, microseconds until all is done, whether both are sure, and the metrics
    that explain them."""
    launches: Any = result.evidence["launches"]
    said = [(one["code"], one["grid"]) for one in launches], result.evidence["arguments"]
    found: Any = result.evidence["predicted"]
    others: Any = result.evidence["torch_us"]
    us = sum(one["us"] for one in found)
    values = {metric: result.values[metric] for metric in _EXPLAINING}
    return hashlib.sha256(repr(said).encode()).hexdigest()[:12], {
        "clocks": sum(one["clocks"] for one in found),
        "us": round(us + others, 3),
        "sure": all(one["sure"] for one in found),
        "values": {name: value for name, value in values.items() if math.isfinite(value)},
    }


def counted(file: Path) -> list[str]:
    """The verdicts of predictions, as the page of predictions counts them, and how wide the
    interval must be."""
    said = [times.verdicts(file), times.unsure(file), times.quiet(file), calibration.held(file)]
    return ["", *said, f"calibrated width of the interval: {calibration.calibrated(file):.4f}"]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.harness.bound_against_published",
        description="the compiled bound on utilization against the counters of published commits",
    )
    parser.add_argument("--plot", metavar="FILE", help="write the scatter as SVG")
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="write the evidence of every commit there"
    )
    parser.add_argument(
        "--predictions",
        type=Path,
        metavar="FILE",
        help="write predicted clocks and times there, as JSON, and count their verdicts",
    )
    parser.add_argument(
        "--again", action="store_true", help="make only the predictions of the calls in FILE again"
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
        predictions: Predictions = {"calls": {}, "readings": {}}
        wanted = predictions if arguments.predictions else None
        only: Container[str] | None = None
        if arguments.again:
            before = json.loads(arguments.predictions.read_text(encoding="utf-8"))["readings"]
            # The first of each call: files are in the order of their commits' hashes.
            only = {call: name for name, call in sorted(before.items(), reverse=True)}.values()
        found = [row for file in files for row in rows(file, arguments.keep, wanted, only)]
        if arguments.again:
            # A compiler that writes the same code in another order makes no other call of it.
            anew = {before[name]: call for name, call in predictions["readings"].items()}
            calls = {old: predictions["calls"][call] for old, call in anew.items()}
            predictions = {"calls": calls, "readings": before}
    if arguments.predictions:
        text = json.dumps(predictions, sort_keys=True, indent=0, separators=(",", ":"))
        arguments.predictions.write_text(f"{text}\n", encoding="utf-8")
    if arguments.plot:
        plain = [Row(row.workload.split()[1], row.bound, row.measured) for row in found]
        Path(arguments.plot).write_text(scatter(plain), encoding="utf-8")
    print("\n".join(lines(found)))
    if arguments.predictions:
        print("\n".join(counted(arguments.predictions)))
    return int(any(row.slack < 0 for row in found))


if __name__ == "__main__":
    sys.exit(main())
