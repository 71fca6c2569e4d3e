"""``evidence``: what is kept beside asv's results to explain them, and what of it can go."""

from __future__ import annotations

import argparse
from pathlib import Path

from warpwatch import project
from warpwatch.instruments.compiled.measure import evidence
from warpwatch.judge.evidence import compiled as kept_evidence
from warpwatch.judge.results.asv_results import read_result

from . import inspect


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--results",
        type=Path,
        default=project.results(),
        metavar="DIR",
        help="asv's results; evidence is kept next to them (default: .asv/results)",
    )
    parser.add_argument(
        "--keep",
        type=int,
        metavar="N",
        help="of the newest N commits with results (default: of every commit with results)",
    )
    parser.add_argument("--prune", action="store_true", help="remove the rest")
    parser.add_argument("--json", metavar="FILE", help="write everything to FILE; - is stdout")


def main(args: argparse.Namespace) -> int:
    """Exit 0; 2 where something that is referred to cannot be read."""
    if args.keep is not None and args.keep < 1:
        raise ValueError(f"--keep: expected 1 or more, got {args.keep}")
    folder = args.results / kept_evidence.FOLDER
    if not folder.is_dir():
        raise ValueError(f"{folder}: no evidence is kept there; `warpwatch history` measures some")
    found = evidence.survey(folder, _commits(args.results)[: args.keep])
    sizes = {
        name: sum(path.stat().st_size for path in paths)
        for name, paths in (
            ("evidence", found.evidence),
            ("listings", found.listings),
            ("unwanted", found.unwanted),
        )
    }
    if args.prune:
        for path in found.unwanted:
            path.unlink()
    if args.json:
        content = {
            "command": "evidence",
            "folder": str(folder),
            "evidence_files": len(found.evidence),
            "listings": len(found.listings),
            "unwanted_files": len(found.unwanted),
            "missing_listings": list(found.missing),
            "bytes": sizes,
            "pruned": args.prune,
        }
        inspect.write(args.json, content)
    if args.json != "-":
        print(f"{len(found.evidence)} commits and Tritons, {sizes['evidence']:,} bytes")
        print(f"{len(found.listings)} listings of machine code, {sizes['listings']:,} bytes")
        verb = "removed" if args.prune else "can go (--prune)"
        print(f"{len(found.unwanted)} files nothing refers to, {sizes['unwanted']:,} bytes: {verb}")
        for name in found.missing:
            print(f"no listing of code {name}: its commit must be measured again for --diff --code")
    return 2 if found.missing else 0


def _commits(results: Path) -> list[str]:
    """Commits with results, newest first; ``ValueError`` where there are none."""
    dated = {}
    for path in results.glob("*/*.json"):
        if path.name != "machine.json":
            one = read_result(path)
            dated[one.commit] = one.date_ms
    if not dated:
        raise ValueError(f"{results}: no results, and nothing else says which evidence is wanted")
    return sorted(dated, key=lambda commit: dated[commit], reverse=True)
