"""Names the commits worth measuring again, and prints the asv command that does it."""

from __future__ import annotations

import argparse
import json
import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from warpwatch.judge.results.history import History, Table
from warpwatch.judge.series.suspicion import slide, suspicions
from warpwatch.report.builder import load

from .report import add_source_arguments, sources_of

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Suspect:
    """A series of a machine and the commits to run again, oldest first; none for a slide."""

    machine: str
    benchmark: str
    label: str
    commits: tuple[str, ...]
    ratio: float
    why: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source_arguments(parser)
    parser.add_argument("--runs", type=int, default=4, metavar="N",
                        help="how often to run them again (default %(default)s)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON")


def main(args: argparse.Namespace) -> int:
    """Exit 0 when nothing is suspected, 3 when something waits for more runs or slides."""
    if args.runs < 1:
        raise ValueError(f"--runs: expected 1 or more, got {args.runs}")
    sources = sources_of(args)
    found = suspects(load(sources))
    if args.json:
        print(json.dumps(_document(found), indent=1, allow_nan=False))
    else:
        print("\n".join(lines(found, args.runs, sources.asv)))
    return 3 if found else 0


def suspects(history: History) -> list[Suspect]:
    """Of every noisy verdict series, since its last border, the largest changes first."""
    found = [
        suspect
        for table in history.tables
        for row, info in enumerate(table.series)
        if info.meaning.role == "verdict" and info.meaning.better and not info.meaning.exact
        for suspect in _of_series(table, row)
    ]
    found.sort(key=lambda one: (-_size(one.ratio), one.label))
    return found


def _of_series(table: Table, row: int) -> list[Suspect]:
    info, present = table.series[row], table.present(row)
    start = max(table.borders(row), default=0)
    values = np.where(np.isfinite(table.values[row, present]), table.values[row, present], np.nan)
    era = values[start:].tolist()
    commits = [table.commits[column].hash for column in present[start:].tolist()]
    key = info.key
    found = [
        Suspect(
            machine=key.machine,
            benchmark=key.benchmark,
            label=key.label,
            commits=tuple(commits[one.first : one.last + 1]),
            ratio=one.ratio,
            why=one.why,
        )
        for one in suspicions(era)
    ]
    slid = slide(era)
    if slid is not None:
        why = f"slid slowly since {commits[0][:10]}, {slid.sigmas:.0f} standard errors: no step"
        found.append(Suspect(key.machine, key.benchmark, key.label, (), slid.ratio, why))
    return found


def lines(found: list[Suspect], runs: int, options: Sequence[str] = ()) -> list[str]:
    """What is suspected, then one command a machine, ``options`` of asv's in it."""
    if not found:
        return ["nothing is suspected"]
    out = []
    for one in found:
        where = f"{one.commits[0][:10]} to {one.commits[-1][:10]}" if one.commits else ""
        change = f"{one.ratio - 1:+.1%}" if math.isfinite(one.ratio) else ""
        out.append(f"{change:>8}  {one.label} on {one.machine}: {one.why}  {where}".rstrip())
    for machine in sorted({one.machine for one in found if one.commits}):
        out += ["", *command([one for one in found if one.machine == machine], runs, options)]
    return out


def command(found: list[Suspect], runs: int, options: Sequence[str] = ()) -> list[str]:
    """The asv command that runs the suspected commits of one machine again, samples appended."""
    commits = list(dict.fromkeys(commit for one in found for commit in one.commits))
    benchmarks = sorted({one.benchmark for one in found if one.commits})
    pattern = "|".join(f"^{re.escape(name)}" for name in benchmarks)
    hashes = shlex.quote("\\n".join(commits) + "\\n")
    asv = (
        f"{shlex.join(('asv', 'run', *options))} --append-samples "
        f"--machine {shlex.quote(found[0].machine)} --bench {shlex.quote(pattern)} HASHFILE:-"
    )
    again = f"for i in $(seq {runs}); do " if runs > 1 else ""
    done = "; done" if runs > 1 else ""
    return [f"{again}printf {hashes} | {asv}{done}"]


def _size(ratio: float) -> float:
    return abs(math.log(ratio)) if ratio > 0.0 and math.isfinite(ratio) else math.inf


def _document(found: list[Suspect]) -> dict[str, object]:
    return {
        "schema_version": SCHEMA_VERSION,
        "suspects": [
            {
                "machine": one.machine,
                "benchmark": one.benchmark,
                "series": one.label,
                "commits": list(one.commits),
                "ratio": one.ratio if math.isfinite(one.ratio) else None,
                "why": one.why,
            }
            for one in found
        ],
    }
