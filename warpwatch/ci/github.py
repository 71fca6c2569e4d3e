"""GitHub as the judge needs it: the event that started it, and seven calls of the REST API."""

from __future__ import annotations

import json
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, Any

from warpwatch.judge.results.strict_json import RejectedError, load

from .artifact import MAX_ARTIFACT_BYTES, is_commit

_REPOSITORY = re.compile(r"[A-Za-z0-9._-]{1,100}/[A-Za-z0-9._-]{1,100}")
_LOGIN = re.compile(r"[A-Za-z0-9-]{1,39}(?:\[bot\])?")
_MAX_ANSWER_BYTES = 16 * 1024 * 1024
_PAGES = 20


@dataclass(frozen=True)
class Event:
    """A finished workflow run, as GitHub itself describes it: nothing here is an artifact's."""

    repository: str
    default_branch: str
    run: int
    head: str
    head_owner: str
    head_branch: str
    url: str


@dataclass(frozen=True)
class PullRequest:
    """The open pull request whose newest commit was measured."""

    number: int
    branch: str
    base: str
    head: str


@dataclass(frozen=True)
class Artifact:
    """An artifact of the run, not yet downloaded."""

    identity: int
    name: str
    size_bytes: int


class ApiError(ValueError):
    """The API refused or cannot be reached; the message says which call."""


def read_event(path: Path) -> Event:
    """The ``workflow_run`` event in the file; ``RejectedError`` with every mistake."""
    document = load(path)
    run = document.get("workflow_run") if isinstance(document, dict) else None
    if not isinstance(run, dict):
        raise RejectedError(path, ["expected a workflow_run event"])
    problems = []
    repository = _at(document, "repository", "full_name")
    default = _at(document, "repository", "default_branch")
    owner = _at(run, "head_repository", "owner", "login")
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
    if problems:
        raise RejectedError(path, problems)
    names = (str(repository), str(default))
    return Event(*names, run["id"], str(head), str(owner), str(branch), url if url else "")


class GitHub:
    """A client of one repository."""

    def __init__(self, repository: str, token: str, url: str = "", timeout_s: float = 30.0):
        self._repository = repository
        self._token = token
        self._url = (url or os.environ.get("GITHUB_API_URL", "")).rstrip("/")
        self._timeout_s = timeout_s
        if not self._url:
            raise ValueError("GITHUB_API_URL is not set: the judge runs inside GitHub Actions")
        self._opener = urllib.request.build_opener(_NoRedirect)

    def pull_request(self, event: Event) -> PullRequest | None:
        """The one open pull request whose head is exactly the measured commit.

        The number is looked up from who pushed what, never read from the run's artifacts.
        """
        head = urllib.parse.quote(f"{event.head_owner}:{event.head_branch}", safe="")
        found = [
            pull
            for pull in self._pages(f"pulls?state=open&head={head}")
            if _at(pull, "head", "sha") == event.head
        ]
        if len(found) != 1:
            return None
        number, base = found[0].get("number"), _at(found[0], "base", "ref")
        if type(number) is not int or not isinstance(base, str):
            raise ApiError("GET pulls: the answer has no number or base")
        return PullRequest(number, base, self.merge_base(base, event.head), event.head)

    def merge_base(self, base: str, head: str) -> str:
        """The commit at which the head departed from the branch ``base``."""
        branch = urllib.parse.quote(base, safe="")
        answer = self._call("GET", f"compare/{branch}...{head}?per_page=1")
        commit = _at(answer, "merge_base_commit", "sha")
        if not is_commit(commit):
            raise ApiError(f"GET compare/{base}...{head[:10]}: no merge base in the answer")
        return str(commit)

    def artifacts(self, run: int) -> list[Artifact]:
        """The artifacts of a run that have not expired, the newest of each name.

        A job that is run again delivers under its old name; GitHub keeps both.
        """
        newest: dict[str, Artifact] = {}
        for entry in self._pages(f"actions/runs/{run}/artifacts?", "artifacts"):
            if type(entry.get("id")) is int and not entry.get("expired"):
                found = Artifact(entry["id"], str(entry["name"]), int(entry["size_in_bytes"]))
                known = newest.setdefault(found.name, found)
                if known.identity < found.identity:
                    newest[found.name] = found
        return list(newest.values())

    def download(self, artifact: Artifact) -> bytes:
        """The artifact's zip. GitHub answers with the address of its store: the token stays."""
        if artifact.size_bytes > MAX_ARTIFACT_BYTES:
            raise RejectedError(
                Path(artifact.name[:80]), [f"is larger than {MAX_ARTIFACT_BYTES:,} bytes"]
            )
        path = f"actions/artifacts/{artifact.identity}/zip"
        location, body = self._request("GET", path, None, MAX_ARTIFACT_BYTES)
        if not location:
            return body
        store = urllib.request.Request(location)
        if store.type != "https" and not self._url.startswith("http://"):
            raise ApiError(f"GET {path}: redirected to something that is not https")
        try:
            with urllib.request.urlopen(store, timeout=self._timeout_s) as answer:
                return _limited(answer, MAX_ARTIFACT_BYTES, path)
        except (OSError, HTTPException) as error:
            raise ApiError(f"GET {path}: the store does not answer: {error}") from None

    def put_comment(self, number: int, marker: str, body: str) -> None:
        """Write the one comment that starts with ``marker``, or bring it up to date."""
        me = "github-actions[bot]"
        for comment in self._pages(f"issues/{number}/comments?"):
            # Anyone can write the marker into a comment of their own: only ours is ours.
            if _at(comment, "user", "login") == me and str(comment.get("body")).startswith(marker):
                if comment["body"] != body:
                    self._call("PATCH", f"issues/comments/{int(comment['id'])}", {"body": body})
                return
        self._call("POST", f"issues/{number}/comments", {"body": body})

    def put_check(self, name: str, head: str, conclusion: str, title: str, summary: str) -> None:
        """Create the finished check on the measured commit."""
        output = {"title": title[:255], "summary": summary[:65_000]}
        body = {
            "name": name,
            "head_sha": head,
            "status": "completed",
            "conclusion": conclusion,
            "output": output,
        }
        self._call("POST", "check-runs", body)

    def put_issue(self, title: str, body: str) -> None:
        """Open an issue with this title unless one is open."""
        for issue in self._pages("issues?state=open&creator=github-actions%5Bbot%5D"):
            if issue.get("title") == title:
                return
        self._call("POST", "issues", {"title": title, "body": body})

    def _pages(self, path: str, key: str = "") -> Iterator[dict[str, Any]]:
        joint = "" if path.endswith("?") else "&"
        for page in range(1, _PAGES + 1):
            answer = self._call("GET", f"{path}{joint}per_page=100&page={page}")
            entries = answer.get(key) if key and isinstance(answer, dict) else answer
            if not isinstance(entries, list):
                raise ApiError(f"GET {path}: expected a list")
            yield from (entry for entry in entries if isinstance(entry, dict))
            if len(entries) < 100:
                return

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        _, answer = self._request(method, path, body, _MAX_ANSWER_BYTES)
        try:
            return json.loads(answer)
        except ValueError:
            raise ApiError(f"{method} {path}: the answer is not JSON") from None

    def _request(
        self, method: str, path: str, body: dict[str, Any] | None, limit: int
    ) -> tuple[str, bytes]:
        """Where the answer lies instead, if it is a redirect, and the answer."""
        request = urllib.request.Request(
            f"{self._url}/repos/{self._repository}/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Accept": "application/vnd.github+json",
                "Authorization": f"Bearer {self._token}",
                "Content-Type": "application/json",
                "X-GitHub-Api-Version": "2022-11-28",
            },
        )
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                return "", _limited(answer, limit, path)
        except urllib.error.HTTPError as error:
            if error.code in (301, 302, 307, 308):
                return str(error.headers.get("Location", "")), b""
            raise ApiError(f"{method} {path}: {error.code} {error.reason}") from None
        except (OSError, HTTPException) as error:
            raise ApiError(f"{method} {path}: no answer: {error}") from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect must not carry the token to another host."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> None:
        return None


def _limited(answer: Any, limit: int, path: str) -> bytes:
    data: bytes = answer.read(limit + 1)
    if len(data) > limit:
        raise RejectedError(Path(path), [f"is larger than {limit:,} bytes"])
    return data


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
