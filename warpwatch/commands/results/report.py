"""Reads result folders and writes the site."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from warpwatch import project
from warpwatch.config.package import load as load_package
from warpwatch.judge.model.directions import Directions, read_directions
from warpwatch.judge.results.processes import Workers
from warpwatch.report.builder import Sources, build
from warpwatch.report.view import many


def default_results() -> tuple[Path, Path]:
    """Where a project's results are: what was measured here, and what it publishes."""
    return project.results(), project.folder() / "reports" / "published"


def default_repository() -> Path:
    """The measured repository, or the working folder where no project is configured."""
    if not project.configuration_file().is_file():
        return Path()
    return load_package().repository_path


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Where results and commits come from; shared by every command that judges."""
    parser.add_argument(
        "--results",
        type=Path,
        action="append",
        metavar="DIR",
        help="asv results folder, repeatable (default: .asv/results and reports/published)",
    )
    parser.add_argument(
        "--repo", type=Path, metavar="DIR", help="git repository (default: the configured one)"
    )
    parser.add_argument("--branch", default="HEAD", help="whose history is shown (default: HEAD)")
    parser.add_argument(
        "--machines",
        choices=("name", "model"),
        default="name",
        help="which machines are one: of one name (default), or of one model of processor and card",
    )
    parser.add_argument(
        "--directions", type=Path, metavar="FILE", help="TOML: which way is better, by name or unit"
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source_arguments(parser)
    parser.add_argument("--project", default="", metavar="NAME", help="name shown on the pages")
    parser.add_argument(
        "--out", type=Path, default=project.folder() / "reports" / "html", metavar="DIR"
    )


def repository_of(args: argparse.Namespace) -> Path:
    """The repository that the arguments name, else the configured one."""
    return args.repo or default_repository()


def asv_options(args: argparse.Namespace) -> tuple[str, ...]:
    """What asv is told of its configuration where it runs in the project's folder; nothing of other
    projects' results, whose asv finds its file where it lies."""
    own = {folder.resolve() for folder in default_results()}
    given = {folder.resolve() for folder in args.results or own}
    file = project.asv_configuration()
    if not project.configuration_file().is_file() or not own & given:
        return ()
    if file.parent == project.folder():
        return ()
    return ("--config", file.relative_to(project.folder()).as_posix())


def sources_of(args: argparse.Namespace) -> Sources:
    """The sources the arguments name; ``ValueError`` where there is nothing to read."""
    folders = args.results or [folder for folder in default_results() if folder.is_dir()]
    if not folders:
        tried = " or ".join(map(str, default_results()))
        raise ValueError(
            f"no results in {tried}: run `warpwatch history` first, or give --results DIR"
        )
    missing = [str(folder) for folder in folders if not folder.is_dir()]
    if missing:
        raise ValueError(f"--results: no folder {' '.join(missing)}")
    directions = read_directions(args.directions) if args.directions else Directions()
    repository = repository_of(args)
    return Sources(
        tuple(folders), repository, args.branch, directions, args.machines, asv_options(args)
    )


def main(args: argparse.Namespace) -> int:
    """Exit 0 when the site shows results, 3 when nothing was measured or too little was judged."""
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
            f"{many(outcome.written, 'file')} written, {outcome.kept} kept; "
            f"{many(len(outcome.judgement.places), 'series')}, "
            f"{many(len(history.measured), 'commit')}, "
            f"{many(len(outcome.judgement.findings), 'finding')}",
            file=sys.stderr,
        )
        print(outcome.judgement.coverage.sentence, file=sys.stderr)
    print(args.out / "index.html")
    return 0 if outcome.enough else 3
