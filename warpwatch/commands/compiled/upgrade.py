"""``upgrade``: what another Triton version does to the kernels, kernel by kernel."""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
import time
from dataclasses import asdict
from pathlib import Path

from warpwatch import project
from warpwatch.commands import extras
from warpwatch.config import tritons
from warpwatch.config.package import workloads as load_workloads
from warpwatch.instruments.compiled.diff import comparison, sides, upgrade_page
from warpwatch.instruments.compiled.measure import jobs

from . import inspect, tables


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("new", metavar="NEW", help="Triton version to go to, such as 3.9.0")
    parser.add_argument(
        "--from",
        dest="old",
        metavar="OLD",
        help="version to come from (default: the installed one)",
    )
    parser.add_argument("--match", default="", metavar="TEXT", help="only workloads that hold TEXT")
    parser.add_argument("--page", metavar="FILE", help="default: .asv/upgrade-OLD-NEW.md")
    parser.add_argument("--json", metavar="FILE", help="write everything to FILE; - is stdout")


def main(args: argparse.Namespace) -> int:
    old_version = args.old or importlib.metadata.version("triton")
    for version in (old_version, args.new):
        if not sides.is_version(version):
            raise ValueError(f"expected a version of Triton such as 3.9.0, got {version!r}")
        if mistake := tritons.mistake(version):
            raise ValueError(mistake)
    if old_version == args.new:
        raise ValueError(f"triton {args.new} is what there is: name another version")
    asked = [
        jobs.Job(workload.name, target, is_workload=True)
        for workload, target in load_workloads().fixed_set()
        if args.match in workload.name
    ]
    if not asked:
        raise ValueError(f"--match: no workload of the fixed set holds {args.match!r}")
    found = []
    started = time.monotonic()
    for version in (old_version, args.new):
        with sides.opened(version) as side:
            print(f"compiling {len(asked)} pairs with {side.label}", file=sys.stderr)
            extras.require("torch")
            found.append(inspect.in_order(jobs.run(asked, side.environment), asked))
    print(f"done in {time.monotonic() - started:.0f} s", file=sys.stderr)
    compared = comparison.compare(*found)
    page = Path(args.page or project.folder() / ".asv" / f"upgrade-{old_version}-{args.new}.md")
    page.parent.mkdir(parents=True, exist_ok=True)
    command = f"warpwatch upgrade {args.new} --from {old_version}"
    command += f" --match {args.match}" if args.match else ""
    said = dict.fromkeys(upgrade_page.notes_of(found[0]))
    notes = [note for note in upgrade_page.notes_of(found[1]) if note not in said]
    unknown = sorted({name for side in found for name in upgrade_page.unknown_of(side)})
    text = upgrade_page.markdown(
        compared, old_version, args.new, command, notes=notes, unknown=unknown
    )
    page.write_text(text, encoding="utf-8")
    if args.json:
        content = {"command": "upgrade", "old": old_version, "new": args.new}
        rows = [asdict(one) for one in compared]
        inspect.write(args.json, {**content, "compared": rows, "unknown_instructions": unknown})
    if args.json != "-":
        print(f"triton {old_version} -> {args.new}: {comparison.in_words(compared)}")
        told = ("LOST", "HURT", *comparison.UNSURE)
        for line in tables.lines([one for one in compared if one.word in told]):
            print(line)
        print(f"page: {page}")
    if unknown:
        print(f"instructions that no reader knows: {', '.join(unknown)}", file=sys.stderr)
    if all(one.word == "nothing" for one in compared):
        return 3
    return comparison.exit_code(compared)
