"""Says whether a GPU machine may measure for this event, and against which base."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from warpwatch import project
from warpwatch.ci.event import Event, read_event
from warpwatch.ci.gate import admit
from warpwatch.ci.github import GitHub
from warpwatch.config.package import load


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--environment", required=True, metavar="NAME",
                        help="whose reviewers approve a pull request's commit")  # fmt: skip
    parser.add_argument("--base", default="", metavar="COMMIT",
                        help="the base of the default branch's own events")  # fmt: skip
    parser.add_argument("--output", type=Path, metavar="FILE",
                        help="append base=… to this file (GITHUB_OUTPUT)")  # fmt: skip


def main(args: argparse.Namespace) -> int:
    """Write the base, empty where nothing is to be measured.

    Args:
        args: The parsed arguments.

    Returns:
        0.

    Raises:
        ValueError: The event may not measure.
    """

    def read() -> tuple[Event, GitHub]:
        event = read_event(Path(os.environ.get("GITHUB_EVENT_PATH", "")))
        return event, GitHub(event.repository, os.environ.get("GITHUB_TOKEN", ""))

    kind = os.environ.get("GITHUB_EVENT_NAME", "")
    found = admit(kind, args.base, args.environment, read, measured_folder())
    if found.reason:
        print(f"nothing to measure: {found.reason}", file=sys.stderr)
    if args.output:
        with args.output.open("a", encoding="utf-8") as file:
            file.write(f"base={found.base}\n")
    else:
        print(found.base)
    return 0


def measured_folder() -> str:
    """The measured package's folder here; empty where it is in another repository, or unknown."""
    try:
        package = load()
    except ValueError:
        return ""
    own = package.repository_path.resolve() == project.folder().resolve()
    return package.path if own else ""
