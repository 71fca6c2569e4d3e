"""Reads result folders and writes the site."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from reports.directions import Directions, read_directions
from reports.pages.builder import Sources, build
from reports.work import Workers

DEFAULT_RESULTS = (Path(".asv/results"), Path("reports/published"))


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Where results and commits come from; shared by every command that judges."""
    parser.add_argument(
        "--results",
        type=Path,
        action="append",
        metavar="DIR",
        help="asv results folder, repeatable (default: .asv/results and reports/published)",
    )
    parser.add_argument("--repo", type=Path, default=Path(), metavar="DIR", help="git repository")
    parser.add_argument("--branch", default="HEAD", help="whose history is shown (default: HEAD)")
    parser.add_argument(
        "--directions", type=Path, metavar="FILE", help="TOML: which way is better, by name or unit"
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source_arguments(parser)
    parser.add_argument("--project", default="", metavar="NAME", help="name shown on the pages")
    parser.add_argument("--out", type=Path, default=Path("reports/html"), metavar="DIR")


def sources_of(args: argparse.Namespace) -> Sources:
    """The sources the arguments name; ``ValueError`` where there is nothing to read."""
    folders = args.results or [folder for folder in DEFAULT_RESULTS if folder.is_dir()]
    if not folders:
        tried = " or ".join(map(str, DEFAULT_RESULTS))
        raise ValueError(f"no results in {tried}: run `asv run` first, or give --results DIR")
    directions = read_directions(args.directions) if args.directions else Directions()
    return Sources(tuple(folders), args.repo, args.branch, directions)


def main(args: argparse.Namespace) -> int:
    """Exit 0 when the site shows at least one result, 3 when nothing was measured."""
    with Workers() as workers:
        outcome = build(sources_of(args), args.out, args.project, workers=workers)
    if outcome.judgement is None:
        print("nothing changed since the last build", file=sys.stderr)
    else:
        history = outcome.judgement.history
        for notice in history.notices[:20]:
            print(f"notice: {notice}", file=sys.stderr)
        if len(history.notices) > 20:
            print(f"notice: {len(history.notices) - 20} more, see the index page", file=sys.stderr)
        print(
            f"{outcome.written} files written, {outcome.kept} kept; "
            f"{len(outcome.judgement.places)} series, {len(history.measured)} commits, "
            f"{len(outcome.judgement.findings)} findings",
            file=sys.stderr,
        )
    print(args.out / "index.html")
    return 0 if outcome.measured else 3
