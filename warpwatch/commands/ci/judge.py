"""Judges the artifacts of a pull request's run and says so on GitHub; runs none of its code."""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
import tomllib
import traceback
from pathlib import Path

from warpwatch.ci.api import ApiError
from warpwatch.ci.artifact import claimed_bases
from warpwatch.ci.event import Event, read_event
from warpwatch.ci.github import GitHub, PullRequest
from warpwatch.ci.message import MARKER, comment, document, summary, title
from warpwatch.ci.pull_request import (
    Expected,
    Judgement,
    could_not_judge,
    judge,
    nothing_to_measure,
)

from .gate import measured_folder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--event", type=Path, default=os.environ.get("GITHUB_EVENT_PATH"),
                        metavar="FILE", help="the workflow_run event")  # fmt: skip
    parser.add_argument("--run", type=int, metavar="ID",
                        help="the run that holds the artifacts (default: the event's)")  # fmt: skip
    parser.add_argument("--lane", nargs="+", required=True, metavar="BACKEND",
                        help="whose shards are to be there: cpu, cuda, rocm")  # fmt: skip
    parser.add_argument("--versions", type=Path, default=Path("docker/versions.toml"),
                        metavar="FILE", help="how many shards each backend has")  # fmt: skip
    parser.add_argument("--trusted", type=Path, required=True, metavar="DIR",
                        help="results measured on the default branch")  # fmt: skip
    parser.add_argument("--out", type=Path, default=Path("verdict.json"), metavar="FILE")


def main(args: argparse.Namespace) -> int:
    """Exit 0 when the verdict was delivered, whatever it is: the check carries it.

    Args:
        args: The parsed arguments.

    Returns:
        0, or 3 where the judge itself has failed and the check says so.

    Raises:
        ValueError: There is no event that names a commit.
    """
    if not args.event:
        raise ValueError("--event: expected a file, or GITHUB_EVENT_PATH in the environment")
    event = read_event(Path(args.event))
    api = GitHub(event.repository, os.environ.get("GITHUB_TOKEN", ""))
    pulls: list[PullRequest] = []
    try:
        pulls = api.pull_requests(event)
        verdicts = _judged(args, api, event, pulls)
    except Exception as error:  # whatever it is: a check that stays pending helps nobody
        traceback.print_exc()
        # Without an answer of the API the default branch's check is the one that is waited for.
        failed = pulls or [PullRequest(0, event.default_branch, "", event.head)]
        for pull in failed:
            judgement = could_not_judge(pull.base, pull.head, error)
            deliver(api, event, pull, judgement, "-".join(args.lane))
        args.out.write_text(json.dumps(document(judgement), indent=1) + "\n", encoding="utf-8")
        return 3
    if not pulls:
        # Somebody pushed again, or closed it: the newer run is judged instead.
        print(f"no open pull request has {event.head[:10]} as its head", file=sys.stderr)
    for pull, judgement in verdicts:
        args.out.write_text(json.dumps(document(judgement), indent=1) + "\n", encoding="utf-8")
        deliver(api, event, pull, judgement, "-".join(args.lane))
        print(f"{judgement.conclusion}: {title(judgement)}")
    return 0


def _judged(
    args: argparse.Namespace, api: GitHub, event: Event, pulls: list[PullRequest]
) -> list[tuple[PullRequest, Judgement]]:
    """The verdict on each pull request of this head whose base the run has measured."""
    if not pulls:
        return []
    expected = expected_shards(args.versions, args.lane)
    artifacts = api.artifacts(args.run or event.run)
    download = functools.cache(api.download)
    # On a GPU the harness is the default branch's: of a commit the package alone is measured.
    folder = "" if "cpu" in args.lane else measured_folder()
    bases = dict.fromkeys(pull.base for pull in pulls)
    same = {base for base in bases if folder and api.same(base, event.head, folder)}
    if len(bases) > 1:
        # Each has a run of its own; one that measured no base of theirs is refused by the first.
        mine = claimed_bases(artifacts, download, args.lane) | same
        pulls = [pull for pull in pulls if pull.base in mine] or pulls[:1]
    verdicts = {
        base: nothing_to_measure(base, event.head, folder)
        if base in same
        else judge(artifacts, download, expected, args.trusted, base, event.head)
        for base in dict.fromkeys(pull.base for pull in pulls)
    }
    return [(pull, verdicts[pull.base]) for pull in pulls]


def expected_shards(versions: Path, lanes: list[str]) -> list[Expected]:
    """Shards and machine of each lane, from the default branch's own file."""
    try:
        backends = tomllib.loads(versions.read_text(encoding="utf-8"))["backends"]
        found = [(lane, backends[lane]) for lane in lanes]
        return [Expected(lane, int(of["shards"]), str(of["machine"])) for lane, of in found]
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{versions}: no shards and machine of {' '.join(lanes)}: {error!r}"
        ) from None


def deliver(api: GitHub, event: Event, pull: PullRequest, judgement: Judgement, lane: str) -> None:
    """The check first: a comment that cannot be written must not leave it pending."""
    said = summary(judgement)
    # A pull request may be given another base afterwards; its checks stay with the commit.
    name = f"warpwatch {lane}"
    name += f" on {pull.branch}" if pull.branch != event.default_branch else ""
    api.put_check(name, pull.head, judgement.conclusion, title(judgement), said)
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(said)
    if not pull.number:
        return
    marker = MARKER.replace("verdict", f"{lane} verdict")
    try:
        api.put_comment(pull.number, marker, comment(judgement, event.url).replace(MARKER, marker))
    except ApiError as error:
        print(f"warning: the comment was not written: {error}", file=sys.stderr)
