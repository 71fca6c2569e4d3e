"""Runs our judge and asv's detection on public histories, and counts what each of them names.

    python -m tools.histories FOLDER [numpy] [scipy] ... [--build] [--publish] [--json FILE]

FOLDER holds git repositories of the results and the sources, a bare one for each, named OWNER+NAME.
Where one is missing, the command that brings it is printed. ``--build`` also makes each report and
says what it cost; ``--publish`` does so for ``asv publish``, which takes minutes. Exit 1 where a
range is not true.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tools.histories import costs
from tools.histories.places import Place, expected, places, repository, unpacked
from tools.histories.scoring import Commits, by_other, by_ours, counts, outcomes
from tools.histories.tables import Known, confirmed, listed
from warpwatch.judge.findings.judgement import judge_folders
from warpwatch.judge.scorecard.other_detectors import others


def main(given: Sequence[str] | None = None) -> int:
    every = places()
    parser = argparse.ArgumentParser(
        prog="python -m tools.histories",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help=", ".join(every))
    parser.add_argument("--into", type=Path, help="where results are unpacked, and kept")
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--publish", action="store_true")
    parser.add_argument("--json", type=Path, help="adds the figures to this file")
    args = parser.parse_args(given)
    unknown = sorted(set(args.names) - set(every))
    if unknown:
        parser.error(f"unknown history {unknown[0]}: expected one of {', '.join(every)}")
    chosen = [every[name] for name in args.names or every]
    missing = [line for place in chosen for line in expected(args.folder, place)]
    if missing:
        print("\n".join(missing), file=sys.stderr)
        return 2
    document: dict[str, Any] = {}
    if args.json and args.json.exists():
        document = json.loads(args.json.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as scratch:
        into = args.into or Path(scratch)
        for place in chosen:
            document[place.name] = measured(args.folder, place, into, args.build, args.publish)
            print(json.dumps({place.name: document[place.name]}, indent=1), flush=True)
            if args.json:
                args.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    shown = [document[place.name]["counts"] for place in chosen]
    return int(any(one["true_ranges"] < one["ranges"] for one in shown))


def measured(folder: Path, place: Place, into: Path, build: bool, publish: bool) -> dict[str, Any]:
    """Everything that is known of one history after both judges have seen it."""
    sources = repository(folder, place.sources)
    assert sources is not None, place.sources
    results = unpacked(folder, place, into)
    before = os.times()
    judgement = judge_folders([results], sources)
    after = os.times()
    found: dict[str, Any] = {
        "counts": asdict(counts(judgement)),
        "judge_cpu_s": round(sum(after[:4]) - sum(before[:4]), 1),
    }
    commits = Commits(sources)
    tables = {
        "confirmed": [one for one in confirmed() if one.history == place.name],
        "listed": [one for one in listed() if one.history == place.name],
    }
    asv = others()["asv step_detect"]
    named = {"ours": by_ours(judgement)}
    if not isinstance(asv, str):
        wanted = [one for known in tables.values() for one in known]
        named["asv"] = by_other(judgement, wanted, asv, commits)
    for table, known in tables.items():
        right = [one for one in known if one.label == "regression"]
        for judge, ranges in named.items():
            if right:
                found.setdefault(table, {})[judge] = _counted(
                    right, outcomes(right, ranges, commits)
                )
    if build:
        found["ours"] = _rounded(costs.ours(results, sources, into / place.name / "site"))
    if publish:
        out = into / place.name / "asv"
        found["asv"] = _rounded(costs.of_asv(results, sources, place.branch, out))
    return found


def _counted(known: Sequence[Known], results: Sequence[str]) -> dict[str, Any]:
    """How many of each outcome, and every regression whose commit was not named."""
    number = Counter(results)
    return {
        "regressions": len(known),
        "named": number["named"],
        "not_named": [
            f"{one.name}: {result}"
            for one, result in zip(known, results, strict=True)
            if result != "named"
        ],
    }


def _rounded(cost: costs.Cost) -> dict[str, float]:
    return {name: round(value, 1) for name, value in asdict(cost).items()}


if __name__ == "__main__":
    sys.exit(main())
