"""GitHub as the judge and the gate need it: pull requests, artifacts, comments and checks."""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from warpwatch.judge.results.strict_json import RejectedError

from .api import Api, ApiError, at, is_commit
from .event import Event

MAX_ARTIFACT_BYTES = 64 * 1024 * 1024
_UNKNOWN = (404, 409, 422)  # of a commit or a folder


@dataclass(frozen=True)
class PullRequest:
    """What is judged: an open pull request whose newest commit was measured, or a merge group.

    A merge group has no ``number``: there is nobody to write a comment to.
    """

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


class GitHub:
    """A client of one repository."""

    def __init__(self, repository: str, token: str, url: str = "", timeout_s: float = 30.0):
        self._api = Api(repository, token, url, timeout_s)

    def pull_requests(self, event: Event) -> list[PullRequest]:
        """The open pull requests whose head is exactly the measured commit, or the merge group.

        One head may stand in several, each with a base of its own; that of the default branch
        comes first. Numbers are looked up from who pushed what, never read from the artifacts.
        """
        if event.queued_for:
            return [PullRequest(0, event.queued_for, event.queued_on, event.head)]
        head = urllib.parse.quote(f"{event.head_owner}:{event.head_branch}", safe="")
        found = []
        for pull in self._api.pages(f"pulls?state=open&head={head}"):
            if at(pull, "head", "sha") != event.head:
                continue
            number, branch = pull.get("number"), at(pull, "base", "ref")
            if type(number) is not int or not isinstance(branch, str):
                raise ApiError("GET pulls: the answer has no number or base")
            base = self.merge_base(branch, event.head)
            found.append(PullRequest(number, branch, base, event.head))
        return sorted(found, key=lambda pull: (pull.branch != event.default_branch, pull.number))

    def merge_base(self, base: str, head: str) -> str:
        """The commit at which the head departed from the branch ``base``."""
        branch = urllib.parse.quote(base, safe="")
        answer = self._api.get(f"compare/{branch}...{head}?per_page=1")
        commit = at(answer, "merge_base_commit", "sha")
        if not is_commit(commit):
            raise ApiError(f"GET compare/{base}...{head[:10]}: no merge base in the answer")
        return str(commit)

    def reviewers(self, environment: str) -> int:
        """How many people or teams an environment asks; none where it does not exist."""
        name = urllib.parse.quote(environment, safe="")
        try:
            answer = self._api.get(f"environments/{name}")
        except ApiError as error:
            if error.status == 404:
                return 0
            raise
        rules = at(answer, "protection_rules")
        return sum(
            len(rule.get("reviewers") or ())
            for rule in (rules if isinstance(rules, list) else ())
            if at(rule, "type") == "required_reviewers"
        )

    def same(self, base: str, head: str, folder: str) -> bool:
        """Whether the folder is there at both commits and holds the same, by git's own hash.

        Where the API cannot say it, it is not: then there is something to measure.
        """
        try:
            trees = {self._tree(commit, folder) for commit in (base, head)}
        except ApiError as error:
            if error.status not in _UNKNOWN:
                raise
            return False
        return len(trees) == 1 and "" not in trees

    def _tree(self, commit: str, folder: str) -> str:
        found = commit
        for part in PurePosixPath(folder).parts:
            entries = at(self._api.get(f"git/trees/{found}"), "tree")
            below = [
                at(entry, "sha")
                for entry in (entries if isinstance(entries, list) else ())
                if at(entry, "path") == part and at(entry, "type") == "tree"
            ]
            if len(below) != 1 or not is_commit(below[0]):
                return ""
            found = str(below[0])
        return found if found != commit else ""

    def artifacts(self, run: int) -> list[Artifact]:
        """The artifacts of a run that have not expired, the newest of each name.

        A job that is run again delivers under its old name; GitHub keeps both.
        """
        newest: dict[str, Artifact] = {}
        for entry in self._api.pages(f"actions/runs/{run}/artifacts?", "artifacts"):
            if type(entry.get("id")) is int and not entry.get("expired"):
                found = Artifact(entry["id"], str(entry["name"]), int(entry["size_in_bytes"]))
                known = newest.setdefault(found.name, found)
                if known.identity < found.identity:
                    newest[found.name] = found
        return list(newest.values())

    def download(self, artifact: Artifact) -> bytes:
        """The artifact's zip."""
        if artifact.size_bytes > MAX_ARTIFACT_BYTES:
            raise RejectedError(
                Path(artifact.name[:80]), [f"is larger than {MAX_ARTIFACT_BYTES:,} bytes"]
            )
        return self._api.store(f"actions/artifacts/{artifact.identity}/zip", MAX_ARTIFACT_BYTES)

    def put_comment(self, number: int, marker: str, body: str) -> None:
        """Write the one comment that starts with ``marker``, or bring it up to date."""
        me = "github-actions[bot]"

        def put(api: Api) -> None:
            for comment in api.pages(f"issues/{number}/comments?"):
                # Anyone can write the marker into a comment of their own: only ours is ours.
                login, text = at(comment, "user", "login"), str(comment.get("body"))
                if login == me and text.startswith(marker):
                    if text != body:
                        path = f"issues/comments/{int(comment['id'])}"
                        api.write("PATCH", path, {"body": body})
                    return
            # A call without an answer may have gone well: then the next look finds the comment.
            api.write("POST", f"issues/{number}/comments", {"body": body})

        self._api.patiently(put)

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
        self._api.write("POST", "check-runs", body)

    def put_issue(self, title: str, body: str) -> None:
        """Open an issue with this title unless one is open."""

        def put(api: Api) -> None:
            ours = "issues?state=open&creator=github-actions%5Bbot%5D"
            if all(issue.get("title") != title for issue in api.pages(ours)):
                api.write("POST", "issues", {"title": title, "body": body})

        self._api.patiently(put)
