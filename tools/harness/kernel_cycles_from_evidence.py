"""Gives results that were measured before ``kernel_cycles`` its series, from what was kept of them.

    python -m tools.harness.kernel_cycles_from_evidence RESULTS

``ncu`` has always read how long each launch took, and at which clock: both lie in the evidence of a
commit, next to its results. This writes the two series that are made of them, ``kernel_cycles`` and
``off_kernel_us``, next to ``sm_cycles`` of the same calls. What is there already stays as it is: a
second run changes nothing.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import json
import math
import sys
from pathlib import Path
from typing import Any

from asv import util
from asv_runner import statistics as asv_statistics

from warpwatch.config import metrics
from warpwatch.instruments.counters.ncu import KernelCounters, of_calls
from warpwatch.instruments.gpu import off_kernel
from warpwatch.session.commit import INSTRUMENTS

NEIGHBOUR = "track_sm_cycles"
MADE = ("kernel_cycles", "off_kernel_us")
# Columns of a result that hold one value a combination of parameters, and asv's word for each.
STATISTICS = {"stats_ci_99_a": "ci_99_a", "stats_ci_99_b": "ci_99_b", "stats_q_25": "q_25",
              "stats_q_75": "q_75", "stats_number": "number", "stats_repeat": "repeat"}  # fmt: skip

Samples = dict[str, dict[str, tuple[float, ...]]]  # by workload and metric


def main() -> int:
    """Exit 0 where all results have the series."""
    parser = argparse.ArgumentParser(prog="python -m tools.harness.kernel_cycles_from_evidence")
    parser.add_argument("results", type=Path, metavar="RESULTS", help="a folder of asv's results")
    folder: Path = parser.parse_args().results
    described = folder / "benchmarks.json"
    known = json.loads(described.read_text(encoding="utf-8"))
    described.write_text(
        json.dumps(with_descriptions(known), indent=4, sort_keys=True), encoding="utf-8"
    )
    changed = 0
    for path in sorted(folder.glob("*/*-*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        kept = folder / "evidence" / f"gpu-{result['commit_hash'][:12]}.json.gz"
        if kept.is_file() and add(result, samples_of(kept)):
            path.write_text(json.dumps(result), encoding="utf-8")
            changed += 1
    print(f"{changed} results have series that they had not")
    return 0


def with_descriptions(known: dict[str, Any]) -> dict[str, Any]:
    """The descriptions of benchmarks, and those of the series next to the cycles of SMs."""
    made = dict(known)
    for name, one in known.items():
        if not name.endswith(f".{NEIGHBOUR}"):
            continue
        for metric in map(metrics.get, MADE):
            own = name.replace(NEIGHBOUR, f"track_{metric.name}")
            instrument, version = INSTRUMENTS[metric.name]
            made.setdefault(own, {**one, "name": own, "metric": metric.name, "unit": metric.unit,
                                  "role": metric.role, "better": metric.better or "",
                                  "instrument": instrument, "version": version})  # fmt: skip
    return made


def samples_of(evidence: Path) -> Samples:
    """What the evidence of a commit says of each call."""
    with gzip.open(evidence, "rt", encoding="utf-8") as file:
        kept = json.load(file)
    timed = {one["workload"]: one for one in kept["timed"]}
    found: Samples = {}
    for one in kept["counted"]:
        calls = one["evidence"].get("calls")
        if one["status"] != "ok" or not calls:
            continue
        name = one["workload"]
        counted = of_calls([[KernelCounters(**launch) for launch in call] for call in calls])
        time = timed.get(name, {"samples": {}, "evidence": {}})
        mhz = time["evidence"].get("latency_cold", {}).get("mhz")
        found[name] = {"kernel_cycles": counted["kernel_cycles"]}
        found[name] |= off_kernel.of(time["samples"].get("latency_cold", ()), mhz, counted)
    return found


def add(result: dict[str, Any], samples: Samples) -> bool:
    """Add the series to one result. Whether there was one to add."""
    columns = result["result_columns"]
    added = {}
    for name, row in result["results"].items():
        if not name.endswith(f".{NEIGHBOUR}"):
            continue
        for metric in MADE:
            own = name.replace(NEIGHBOUR, f"track_{metric}")
            if own not in result["results"]:
                version = INSTRUMENTS[metric][1]
                added[own] = _row(dict(zip(columns, row, strict=False)), metric, version, samples)
    result["results"] |= added
    result["results"] = dict(sorted(result["results"].items()))
    return bool(added)


def _row(neighbour: dict[str, Any], metric: str, version: str, samples: Samples) -> list[Any]:
    """The columns of a series, made as asv makes them, where its neighbour has a value."""
    (names,) = neighbour["params"]
    # asv leaves the columns out that have nothing for any combination.
    said_of = {column: word for column, word in STATISTICS.items() if column in neighbour}
    found: dict[str, list[Any]] = {"result": [], **{column: [] for column in said_of}}
    for name, value in zip(names, neighbour["result"] or [None] * len(names), strict=True):
        row = samples.get(ast.literal_eval(name), {}).get(metric, ())
        if value is None or not math.isfinite(value) or not row:
            for column in found:
                found[column].append(math.nan if column == "result" and value is not None else None)
            continue
        middle, said = asv_statistics.compute_stats(list(row), 1)
        found["result"].append(middle)
        for column, word in said_of.items():
            found[column].append(util.truncate_float_list(said[word]))
    made = {**neighbour, "version": version, **found}
    return list(made.values())


if __name__ == "__main__":
    sys.exit(main())
