#!/usr/bin/env python3
"""Registers a runner for one job, and refuses where any workflow could reach the machine.

Run by root before each start of the runner (warpwatch-runner.service): the token is root's, and
the job gets a registration that serves only itself. Needs nothing but Python 3.11.

    register.py --config /etc/warpwatch/runner.toml --token /etc/warpwatch/token --out FILE
"""

from __future__ import annotations

import argparse
import json
import os
import pwd
import re
import secrets
import socket
import sys
import tomllib
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

# The workflows that take what they run from the default branch: docs/explanation/security.md.
ALLOWED = re.compile(
    r"(?P<repository>(?P<owner>[\w.-]+)/[\w.-]+)"
    r"/\.github/workflows/warpwatch-(?:gpu|nightly)\.yml@refs/heads/(?P<branch>[\w./-]+)"
)
CALLERS = re.compile(r"\.github/workflows/warpwatch-(?:pull-request-gpu|main|nightly)\.yml(?:@.*)?")
OWN_EVENTS = ("push", "schedule", "workflow_dispatch", "workflow_run")
DEFAULT_LABELS = ("self-hosted", "linux", "x64")
WAITING = ("queued", "in_progress", "waiting", "pending", "requested")


class RefusalError(Exception):
    """It must not be registered; the message says why and what to do."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect must not carry the token to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Api:
    """GitHub's API with an administrator's token."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._url = os.environ.get("GITHUB_API_URL", "https://api.github.com").rstrip("/")

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """The answer; ``RefusalError`` where there is none."""
        request = urllib.request.Request(
            f"{self._url}/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Accept": "application/vnd.github+json",
                "Authorization": f"Bearer {self._token}",
                "Content-Type": "application/json",
            },
        )
        try:
            with urllib.request.build_opener(_NoRedirect).open(request, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise RefusalError(f"{method} {path}: {error.code} {error.reason}") from None
        except (OSError, ValueError) as error:
            raise RefusalError(f"{method} {path}: {error}") from None


def group_of(api: Api, organisation: str, name: str) -> int:
    """The group's number, if no workflow but ours may use its runners."""
    path = f"orgs/{organisation}/actions/runner-groups?per_page=100"
    groups = [one for one in api.call("GET", path)["runner_groups"] if one.get("name") == name]
    if not groups:
        raise RefusalError(f"the organisation {organisation} has no runner group {name!r}: make it")
    selected = groups[0].get("selected_workflows") or []
    if groups[0].get("restricted_to_workflows") is not True or not selected:
        raise RefusalError(
            f"the runner group {name!r} admits every workflow: a pull request could run on this "
            "machine. Restrict it to warpwatch-gpu.yml and warpwatch-nightly.yml"
        )
    for one in selected:
        _is_ours(api, organisation, name, str(one))
    return int(groups[0]["id"])


def _is_ours(api: Api, organisation: str, group: str, selected: str) -> None:
    """Of the organisation's own repository, on its default branch: whoever may push to another
    branch could write there what runs on the machine."""
    match = ALLOWED.fullmatch(selected)
    if match is None or match["owner"].lower() != organisation.lower():
        raise RefusalError(
            f"the runner group {group!r} admits {selected!r}, which is none of ours: expected "
            f"{organisation}/NAME/.github/workflows/warpwatch-gpu.yml@refs/heads/BRANCH"
        )
    try:
        branch = api.call("GET", f"repos/{match['repository']}").get("default_branch")
    except RefusalError as error:
        raise RefusalError(
            f"{error}: which branch of {match['repository']} is the default one is not known; "
            "give the token the right to read that repository's metadata"
        ) from None
    if match["branch"] != branch:
        raise RefusalError(
            f"the runner group {group!r} admits {selected!r}, which is none of ours: the default "
            f"branch is {branch}"
        )


def admit_repository(api: Api, repository: str, labels: list[str], run: int | None) -> None:
    """A repository's runner serves any of its workflows: in a private one its members wrote them
    all; in a public one it is registered for a run that was approved, while nobody else waits."""
    known = api.call("GET", f"repos/{repository}")
    if known.get("private") is True:
        return
    if run is None:
        raise RefusalError(
            f"{repository} is public, and a runner of a repository serves any workflow that a pull "
            "request brings along: use a group of an organisation, or --run for one approved run"
        )
    chosen = api.call("GET", f"repos/{repository}/actions/runs/{run}")
    ours = (
        CALLERS.fullmatch(str(chosen.get("path"))) is not None
        and chosen.get("event") in OWN_EVENTS
        and chosen.get("head_branch") == known.get("default_branch")
        and (chosen.get("head_repository") or {}).get("full_name") == known.get("full_name")
    )
    if not ours:
        raise RefusalError(f"run {run} is not of our workflows on {known.get('default_branch')}")
    runs = f"repos/{repository}/actions/runs"
    jobs = _all(api, f"{runs}/{run}/jobs?", "jobs")
    if not any(job.get("status") == "queued" and _would_take(job, labels) for job in jobs):
        raise RefusalError(
            f"no job of run {run} is queued for such a runner: approve the run first, or name "
            "another; an idle runner would take the next job of anybody"
        )
    for status in WAITING:
        for other in _all(api, f"{runs}?status={status}&", "workflow_runs"):
            if other["id"] == run:
                continue
            jobs = _all(api, f"{runs}/{other['id']}/jobs?", "jobs")
            if any(job.get("status") != "completed" and _would_take(job, labels) for job in jobs):
                raise RefusalError(
                    f"run {other['id']} waits for such a runner, too: cancel it first"
                )


def _all(api: Api, path: str, key: str) -> list[dict[str, Any]]:
    """A list that is not cut off: what is not seen might be what competes."""
    answer = api.call("GET", f"{path}per_page=100")
    found: list[dict[str, Any]] = answer[key]
    if answer.get("total_count", len(found)) > len(found):
        raise RefusalError(f"{path}: more than {len(found)} entries; cancel some, or wait")
    return found


def _would_take(job: dict[str, Any], labels: list[str]) -> bool:
    """Whether the runner may get it; GitHub adds labels of its own."""
    wanted = {str(one).lower() for one in job.get("labels") or ()}
    return wanted <= {one.lower() for one in (*labels, *DEFAULT_LABELS)}


def register(api: Api, config: dict[str, Any], run: int | None) -> str:
    """The registration of one runner for one job."""
    labels = config.get("labels")
    if not isinstance(labels, list) or not labels or not all(isinstance(x, str) for x in labels):
        raise RefusalError("labels: expected those of docker/versions.toml")
    if ("organisation" in config) == ("repository" in config):
        raise RefusalError("expected either organisation, with group, or repository")
    if "organisation" in config:
        owner = f"orgs/{config['organisation']}"
        group = group_of(api, str(config["organisation"]), str(config.get("group", "")))
    else:
        owner, group = f"repos/{config['repository']}", 1  # a repository has one group
        admit_repository(api, str(config["repository"]), labels, run)
    body = {
        "name": f"{socket.gethostname().split('.')[0]}-{secrets.token_hex(4)}",
        "runner_group_id": group,
        "labels": labels,
        "work_folder": "_work",
    }
    answer = api.call("POST", f"{owner}/actions/runners/generate-jitconfig", body)
    return str(answer["encoded_jit_config"])


def write(registration: str, out: Path, user: str) -> None:
    """Readable only by the runner's user."""
    out.unlink(missing_ok=True)
    descriptor = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        if user:
            os.fchown(file.fileno(), pwd.getpwnam(user).pw_uid, -1)
        file.write(registration)


def main() -> int:
    """0 when it is registered, 1 when it must not be."""
    parser = argparse.ArgumentParser(description="Register a runner for one job.")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--token", type=Path, required=True, help="a file that only root reads")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--user", default="", help="who runs the runner")
    parser.add_argument("--run", type=int, help="the approved run, for a public repository")
    args = parser.parse_args()
    try:
        config = tomllib.loads(args.config.read_text(encoding="utf-8"))
        api = Api(args.token.read_text(encoding="utf-8").strip())
        write(register(api, config, args.run), args.out, args.user)
    except (RefusalError, OSError, KeyError, tomllib.TOMLDecodeError) as error:
        print(f"not registered: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
