"""The event that started the judge: a finished run, as GitHub itself describes it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from warpwatch.judge.results.strict_json import RejectedError, load

from .api import at, is_commit

_REPOSITORY = re.compile(r"[A-Za-z0-9._-]{1,100}/[A-Za-z0-9._-]{1,100}")
_LOGIN = re.compile(r"[A-Za-z0-9_-]{1,39}(?:\[bot\])?")  # an enterprise's end in _SHORTCODE
# GitHub names the branch of a merge group after its target and the commit that it stands on.
_QUEUE = re.compile(r"gh-readonly-queue/(?P<branch>.{1,200})/pr-[0-9]{1,10}-(?P<base>[0-9a-f]{40})")


@dataclass(frozen=True)
class Event:
    """A finished workflow run; nothing here is an artifact's."""

    repository: str
    default_branch: str
    run: int
    head: str
    head_owner: str
    head_branch: str
    url: str
    queued_for: str = ""
    """The branch that a merge group waits for; empty for a pull request."""
    queued_on: str = ""
    """The commit that a merge group stands on."""


def read_event(path: Path) -> Event:
    """The ``workflow_run`` event in the file; ``RejectedError`` with every mistake."""
    document = load(path)
    run = document.get("workflow_run") if isinstance(document, dict) else None
    if not isinstance(run, dict):
        raise RejectedError(path, ["expected a workflow_run event"])
    problems = []
    repository = at(document, "repository", "full_name")
    default = at(document, "repository", "default_branch")
    owner = at(run, "head_repository", "owner", "login")
    branch, head, url = run.get("head_branch"), run.get("head_sha"), run.get("html_url")
    if not (isinstance(repository, str) and _REPOSITORY.fullmatch(repository)):
        problems.append("repository.full_name: expected OWNER/NAME")
    if not (isinstance(default, str) and default):
        problems.append("repository.default_branch: expected a branch")
    if not (isinstance(owner, str) and _LOGIN.fullmatch(owner)):
        problems.append("workflow_run.head_repository.owner.login: expected a login")
    if not (isinstance(branch, str) and 0 < len(branch) <= 255):
        problems.append("workflow_run.head_branch: expected a branch")
    if not is_commit(head):
        problems.append("workflow_run.head_sha: expected 40 hexadecimal digits")
    if type(run.get("id")) is not int:
        problems.append("workflow_run.id: expected a number")
    group = None
    if run.get("event") == "merge_group":
        group = _QUEUE.fullmatch(str(branch))
        if group is None or at(run, "head_repository", "full_name") != repository:
            problems.append("workflow_run.head_branch: expected the branch of a merge group")
    if problems:
        raise RejectedError(path, problems)
    queue = (group["branch"], group["base"]) if group else ("", "")
    names = (str(repository), str(default))
    url = url if isinstance(url, str) else ""
    return Event(*names, run["id"], str(head), str(owner), str(branch), url, *queue)
