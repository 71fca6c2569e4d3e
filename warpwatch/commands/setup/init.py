"""``init``: propose a configuration for the package in this folder, and write it.

It reads the package's sources and runs nothing of it, but for a trial of each proposed workload
where Triton is installed: what cannot be recorded is written as a comment with its error.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from warpwatch import project
from warpwatch.config import isolation

from . import starter
from .proposal import Found, Launcher, find_packages, launchers, written

TRIAL_SECONDS = 90.0  # for all calls; five minutes are for the whole of a first report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--package", metavar="FOLDER", help="the package's folder, if several")
    parser.add_argument(
        "--most", type=int, default=12, metavar="N", help="propose at most N workloads (default 12)"
    )
    parser.add_argument("--no-trial", action="store_true", help="propose without trying the calls")
    parser.add_argument(
        "--workflows", action="store_true", help="also write docker/ and .github/workflows"
    )
    parser.add_argument(
        "--from", dest="origin", default="", metavar="OWNER/NAME[@VERSION]",
        help="Warpwatch's repository, whose workflows are called "
             "(default: where this Warpwatch was installed from)",
    )  # fmt: skip


def main(args: argparse.Namespace) -> int:
    """Write ``warpwatch.toml``. Nothing that exists is written over.

    Args:
        args: The parsed arguments.

    Returns:
        0 where a call is proposed, 3 where the user has to write one.

    Raises:
        ValueError: A file exists already, or no package is found.
    """
    root = Path.cwd()
    file = root / project.FILE_NAME
    if args.workflows:
        starter.write(root, starter.origin_of(args.origin))
        if file.exists():
            return 0
    there = project.configuration_file()
    if there.exists():
        raise ValueError(f"{there} exists already: `warpwatch doctor` says whether it is right")
    found = _chosen(root, args.package)
    calls = launchers(found, args.most)
    problems: dict[str, str] = {}
    file.write_text(written(found, calls, problems), encoding="utf-8")
    if calls and not args.no_trial:
        os.environ[project.FILE_VARIABLE] = str(file)
        calls, problems = _tried(calls)
        file.write_text(written(found, calls, problems), encoding="utf-8")
    print(file)
    good = len(calls) - len(problems)
    print(f"package {found.name} in {found.path}; {_calls(good)} proposed", file=sys.stderr)
    if problems:
        count = len(problems)
        they = "it is a comment" if count == 1 else "they are comments"
        print(f"{_calls(count)} could not be recorded: {they}", file=sys.stderr)
        tests = next((one for one in ("tests", "test") if (root / one).is_dir()), "FILE")
        print(
            "a test or a benchmark brings arguments that fit: `warpwatch record --write -- pytest "
            f"{tests}`",
            file=sys.stderr,
        )
    if not good:
        print(
            "write a [[workload]] with arguments that fit: nothing is measured yet", file=sys.stderr
        )
        return 3
    print(
        "look at their arguments, then run `warpwatch doctor` and `warpwatch history --commits 3`",
        file=sys.stderr,
    )
    return 0


def _calls(count: int) -> str:
    return f"{count} call" if count == 1 else f"{count} calls"


def _chosen(root: Path, named: str | None) -> Found:
    packages = find_packages(root)
    if named:
        path = Path(named).as_posix().rstrip("/")
        packages = [one for one in packages if one.path == path]
        if not packages:
            raise ValueError(f"--package {named}: no Python package with Triton code is there")
    if not packages:
        raise ValueError(
            f"no package with Triton code in {root}: expected a folder of Python modules that "
            "import triton, in this folder or below src/"
        )
    if len(packages) > 1:
        names = ", ".join(one.path for one in packages)
        raise ValueError(f"several packages have Triton code ({names}): name one with --package")
    return packages[0]


def _tried(calls: Sequence[Launcher]) -> tuple[list[Launcher], dict[str, str]]:
    """The calls with arguments that can be recorded, and why others cannot, by name; nothing is
    tried without Triton. Where shapes do not fit, others are tried while there is time."""
    if importlib.util.find_spec("triton") is None:
        print("Triton is not installed here: the calls were not tried", file=sys.stderr)
        return list(calls), {}
    from warpwatch.instruments.compiled.measure import compile_server

    print(f"trying {_calls(len(calls))} without a GPU ...", file=sys.stderr, flush=True)
    with compile_server.serving():
        good, problems = _trials(calls, time.monotonic() + TRIAL_SECONDS)
    for one in calls:
        if one.name not in good:
            problems.setdefault(one.name, f"not tried within {TRIAL_SECONDS:.0f} s")
    kept = [good.get(one.name, one) for one in calls]
    return kept, {name: text for name, text in problems.items() if name not in good}


def _trials(
    calls: Sequence[Launcher], deadline: float
) -> tuple[dict[str, Launcher], dict[str, str]]:
    """By name, the calls with the first arguments that could be recorded, and the first reason why
    arguments could not."""
    from warpwatch.instruments.compiled.measure import jobs

    # What is tried lies in the user's folder, which gets the configuration and nothing else.
    environment = {**isolation.subprocess_environment(), "PYTHONDONTWRITEBYTECODE": "1"}
    good: dict[str, Launcher] = {}
    problems: dict[str, str] = {}
    waiting = {
        one.name: (one, *(replace(one, args=args) for args in one.variants)) for one in calls
    }
    while waiting:
        asked = {
            jobs.Job(one.call, "sm_90", one.args, one.backward): one for one, *_ in waiting.values()
        }
        for job, found in jobs.measure(list(asked), environment, job_seconds=TRIAL_SECONDS / 3):
            one = asked[job]
            if found.status == "ok" and found.evidence["launches"]:
                good[one.name] = one
            elif found.status == "ok":
                problems.setdefault(one.name, "no kernel was launched")
            else:
                problems.setdefault(one.name, f"{found.status}: {found.detail}")
            if time.monotonic() > deadline:
                break
        waiting = {
            name: tuple(left[1:])
            for name, left in waiting.items()
            if name not in good and len(left) > 1 and time.monotonic() < deadline
        }
    return good, problems
