"""Joins results of a GPU run with those that are published of the same commits.

    python -m tools.evidence.join_results NEW PUBLISHED [--counters-only COMMIT ...]

Both are folders of asv's results with their evidence. What the new run measured of a commit takes
the place of what was published of it. What only an earlier run measured stays, such as workloads
that a smaller set leaves out: but no series holds values of two methods, so where the method of a
metric changed its earlier values go. ``--counters-only`` names commits whose published times stay,
since peers were timed in the same run.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import itertools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from warpwatch.session.commit import INSTRUMENTS

Json = dict[str, Any]
# Columns that a result has once, whatever its parameters.
_OF_ALL = ("params", "version", "started_at", "duration", "profile")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit 0 where every new result was joined, 2 where there is none."""
    parser = argparse.ArgumentParser(prog="python -m tools.evidence.join_results")
    parser.add_argument("new", type=Path, metavar="NEW", help="a folder of asv's results")
    parser.add_argument("published", type=Path, metavar="PUBLISHED", help="another, is written to")
    parser.add_argument("--counters-only", action="append", default=[], metavar="COMMIT",
                        help="this commit's published times stay; repeatable")  # fmt: skip
    args = parser.parse_args(arguments)
    results = sorted(args.new.glob("*/*-*.json"))
    if not results:
        print(f"error: {args.new}: expected results of asv, found none", file=sys.stderr)
        return 2
    for path in results:
        place = args.published / path.parent.name / path.name
        new = json.loads(path.read_text(encoding="utf-8"))
        commit = new["commit_hash"]
        only = any(commit.startswith(one) for one in args.counters_only)
        kept = Path("evidence", f"gpu-{commit[:12]}.json.gz")
        said = _read(args.new / kept)
        measured = [one["workload"] for one in said["timed"]]
        if place.is_file():
            old = json.loads(place.read_text(encoding="utf-8"))
            new = joined(old, new, measured, only)
            said = joined_evidence(_read(args.published / kept), said, only)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(new), encoding="utf-8")
        _write(args.published / kept, said)
    described = args.published / "benchmarks.json"
    known = with_methods(json.loads(described.read_text(encoding="utf-8")))
    described.write_text(json.dumps(known, indent=4, sort_keys=True), encoding="utf-8")
    print(f"{len(results)} commits joined")
    return 0


def joined(old: Json, new: Json, measured: Sequence[str], counters_only: bool) -> Json:
    """The results of a commit, each value of the newest run that measured it.

    Args:
        old: What is published, as asv writes it.
        new: What the run wrote.
        measured: Workloads of the run.
        counters_only: Whether metrics whose method is unchanged keep their published values.

    Returns:
        Results of asv.
    """
    results: Json = {}
    for name in {**old["results"], **new["results"]}:
        before, now = (_columns(one, name) for one in (old, new))
        metric = name.partition("track_")[2]
        if now is None and before and before["version"] != INSTRUMENTS.get(metric, ("", ""))[1]:
            continue
        if before is None or now is None:
            found = before or now
            assert found is not None
        elif counters_only and before["version"] == now["version"]:
            found = before
        else:
            found = _of_two(before, now, measured)
        results[name] = [found.get(column) for column in new["result_columns"]]
        while results[name] and results[name][-1] is None:
            results[name].pop()
    return {**new, "results": results}


def _columns(result: Json, name: str) -> Json | None:
    row = result["results"].get(name)
    return None if row is None else dict(zip(result["result_columns"], row, strict=False))


def _of_two(before: Json, now: Json, measured: Sequence[str]) -> Json:
    """One benchmark: parameters of both, in the order of the newer."""
    sides = [
        {key: at for at, key in enumerate(itertools.product(*one["params"]))}
        for one in (before, now)
    ]
    comparable = before["version"] == now["version"]
    found: Json = {name: now.get(name) for name in _OF_ALL}
    taken = []
    for key, at in sides[1].items():
        own = ast.literal_eval(key[0]) in measured
        if own or not comparable or key not in sides[0]:
            taken.append((now, at))
        else:
            taken.append((before, sides[0][key]))
    for name in {**before, **now}:
        if name not in _OF_ALL:
            column = [(one.get(name) or [None] * (at + 1))[at] for one, at in taken]
            found[name] = column if any(value is not None for value in column) else None
    return found


def joined_evidence(old: Json, new: Json, counters_only: bool) -> Json:
    """The evidence of a commit, each outcome of the newest run that has it. Counters of an earlier
    method stay evidence, though no series holds them."""
    found = {**old, **new}
    for part in ("timed", "counted"):
        outcomes = {one["workload"]: one for one in old[part]}
        if part == "counted" or not counters_only:
            outcomes |= {one["workload"]: one for one in new[part]}
        found[part] = list(outcomes.values())
    return found


def with_methods(known: Json) -> Json:
    """Descriptions of benchmarks, with today's method of each metric."""
    made = dict(known)
    for name, one in known.items():
        if isinstance(one, dict) and one.get("metric") in INSTRUMENTS and one.get("instrument"):
            instrument, version = INSTRUMENTS[one["metric"]]
            if one["instrument"] != "host":
                made[name] = {**one, "instrument": instrument, "version": version}
    return made


def _read(path: Path) -> Json:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        found: Json = json.load(file)
    return found


def _write(path: Path, content: Json) -> None:
    """Without a time in its head, so that equal evidence is an equal file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = gzip.compress(json.dumps(content).encode(), mtime=0)
    path.write_bytes(data)


if __name__ == "__main__":
    sys.exit(main())
