"""Extends the history on the data branch, brings it here, or says which machine went silent."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from warpwatch.ci import branch
from warpwatch.ci.github import GitHub
from warpwatch.config.package import load


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    push = actions.add_parser("push", help="append results to the data branch")
    push.add_argument("folders", type=Path, nargs="+", metavar="DIR", help="asv results folders")
    push.add_argument("--message", default="Results", metavar="TEXT")
    push.add_argument("--keep-evidence", type=int, default=200, metavar="N",
                      help="results a machine whose evidence files are kept")  # fmt: skip
    fetch = actions.add_parser("fetch", help="check the data branch out")
    fetch.add_argument("--out", type=Path, required=True, metavar="DIR")
    silent = actions.add_parser("silent", help="alarm for machines that owe results")
    silent.add_argument("--days", type=float, default=3.0, metavar="N")
    silent.add_argument("--issue", action="store_true", help="open an issue for each")
    commit = actions.add_parser("commit", help="fetch objects of commits; no checkout")
    commit.add_argument("commits", metavar="SHA", nargs="+")
    for action in (push, fetch, silent):
        action.add_argument("--remote", default="origin", metavar="URL")
        action.add_argument("--branch", default=branch.BRANCH, metavar="NAME")


def main(args: argparse.Namespace) -> int:
    if args.action == "commit":
        for commit in args.commits:
            branch.fetch_commit(Path.cwd(), commit)
        return 0
    remote = _address(args.remote)
    if args.action == "push":
        for folder in args.folders:
            if not folder.is_dir():
                raise ValueError(f"{folder}: is not a folder of asv results")
        commit = branch.record(remote, args.folders, message=args.message, branch=args.branch,
                               keep_results=args.keep_evidence,
                               tell=lambda line: print(line, file=sys.stderr))  # fmt: skip
        print(f"{args.branch} is at {commit}")
        return 0
    if args.action == "fetch":
        found = branch.fetch(remote, args.out, args.branch)
        (args.out / "results").mkdir(exist_ok=True)
        print(f"{args.out}: {'as on ' if found else 'empty, there is no '}{args.branch}")
        return 0
    return _silent(args, remote)


def _silent(args: argparse.Namespace, remote: str) -> int:
    """Exit 0 when every machine has results of what was pushed, 3 when one has none."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "data"
        if not branch.fetch(remote, out, args.branch):
            print(f"there is no {args.branch} yet: no machine was ever heard", file=sys.stderr)
            return 0
        package = load()
        commits = branch.arrivals(package.repository_path, package.path)
        found = branch.silent_machines(out / "results", args.days, time.time(), commits)
    for machine in found:
        line = (
            f"{machine.machine}: no result for {machine.age_days:.1f} days, though commits wait; "
            f"the newest is of {machine.newest[:10] or 'no commit'}: is its runner alive?"
        )
        print(line)
        if args.issue:
            api = GitHub(os.environ["GITHUB_REPOSITORY"], os.environ.get("GITHUB_TOKEN", ""))
            api.put_issue(f"Warpwatch: {machine.machine} has gone silent", line)
    return 3 if found else 0


def _address(remote: str) -> str:
    """The address of a remote of this repository; anything else is an address already."""
    if remote != "origin":
        return remote
    return branch.remote_address(Path.cwd(), remote)
