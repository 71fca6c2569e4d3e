"""The commits of the measured repository, in the order of the graph, read by one git call."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from .core import Commit

# Unit and record separators cannot be typed into a subject by accident, and git drops NUL.
_MOST_BYTES = 1 << 20
_FORMAT = "%H%x1f%P%x1f%ct%x1f%an%x1f%s%x1e"


@dataclass(frozen=True)
class Commits:
    """The commits reachable from the branch, oldest first, and the remote they live at."""

    ordered: tuple[Commit, ...]
    url: str = ""
    absent: frozenset[str] = frozenset()
    """Those known from results alone: git cannot say what they changed."""

    def by_hash(self) -> dict[str, Commit]:
        return {commit.hash: commit for commit in self.ordered}


def head(repo: Path, revision: str = "HEAD") -> str:
    """The hash of ``revision``; ``ValueError`` names what git does not know."""
    try:
        named = f"{revision}^{{commit}}"
        return _git(repo, "rev-parse", "--verify", "--end-of-options", named).strip()
    except ValueError as error:
        # Git says of an unknown name only that it needs one.
        more = "" if "Needed a single revision" in str(error) else f" ({error})"
        raise ValueError(f"{revision}: no such commit in {repo.resolve()}{more}") from None


def branches_with(repo: Path, commits: Iterable[str]) -> list[str]:
    """The branches that hold the newest of ``commits`` that the repository knows.

    Args:
        repo: the repository.
        commits: hashes, the newest first; few, as git looks for each.

    Returns:
        Names of branches; empty where none holds any.
    """
    for commit in commits:
        try:
            found = _git(
                repo, "for-each-ref", f"--contains={commit}", "--format=%(refname:short)",
                "refs/heads", "refs/remotes",
            )  # fmt: skip
        except ValueError:  # not of this repository
            continue
        if found.strip():
            return found.split()
    return []


def tags_of(repo: Path, pattern: str = "*") -> dict[str, str]:
    """List the tags of a repository.

    Args:
        repo: The repository.
        pattern: What their names match, such as ``v*``.

    Returns:
        The hash of each one's commit by its name, in the order of versions.
    """
    form = "--format=%(objectname) %(*objectname) %(refname:short)"
    said = _git(repo, "for-each-ref", "--sort=version:refname", form, "refs/tags")
    rows = [line.split(" ", 2) for line in said.splitlines()]
    return {
        name: annotated or commit for commit, annotated, name in rows if fnmatchcase(name, pattern)
    }


def read_commits(repo: Path, revision: str = "HEAD") -> Commits:
    """All commits reachable from ``revision``; a parent always comes before its children. The
    subject of a tagged commit begins with its tags."""
    tags: dict[str, list[str]] = {}
    for name, tagged in tags_of(repo).items():
        tags.setdefault(tagged, []).append(name)
    log = _git(
        repo,
        "log",
        "--topo-order",
        "--reverse",
        f"--format={_FORMAT}",
        "--end-of-options",
        revision,
    )
    ordered = []
    for position, record in enumerate(filter(None, (r.strip("\n") for r in log.split("\x1e")))):
        fields = record.split("\x1f")
        if len(fields) < 5:
            raise ValueError(f"{repo}: git log gave a record that cannot be read: {record[:80]!r}")
        commit, parents, seconds, author = fields[:4]
        subject = ": ".join([*tags.get(commit, ()), " ".join(fields[4:])])
        ordered.append(
            Commit(commit, tuple(parents.split()), int(seconds), author, subject, position)
        )
    return Commits(tuple(ordered), _url(repo))


def files_of(repo: Path, folder: str, revision: str = "HEAD") -> Mapping[str, frozenset[str]]:
    """The files below ``folder`` that each commit changed; a merge, those that it brought."""
    where = f":(top,literal){folder}"
    arguments = ("-c", "core.quotePath=false", "log", "--format=%x1e%H", "--name-only")
    history = ("--full-history", "--diff-merges=first-parent")
    log = _git(repo, *arguments, *history, "--end-of-options", revision, "--", where)
    found: dict[str, frozenset[str]] = {}
    for entry in filter(None, log.split("\x1e")):
        commit, *files = entry.split("\n")
        found[commit] = frozenset(filter(None, files))
    return found


def patches(repo: Path, commits: Sequence[str], folder: str = "") -> dict[str, str]:
    """What commits changed, as git writes it.

    Args:
        repo: the repository; what its attributes name is not run.
        commits: hashes.
        folder: what lies elsewhere is left out; "" for all.

    Returns:
        The patch of each commit that changed something there; merges are left out.
    """
    options = ("--no-walk", "--no-ext-diff", "--no-textconv", "--no-color", "--unified=2")
    where = f":(top,literal){folder}" if folder else ":(top)"
    log = _beginning(
        repo, "-c", "core.quotePath=false", "log", "--format=%x1e%H", "--patch", *options,
        "--end-of-options", *commits, "--", where,
    )  # fmt: skip
    found: dict[str, str] = {}
    for entry in filter(None, log.split("\x1e")):
        commit, _, patch = entry.partition("\n")
        # A file may hold the separator too: what follows it is no commit.
        if commit in commits:
            found.setdefault(commit, patch.strip("\n"))
    return found


def by_date(dates_ms: dict[str, int]) -> Commits:
    """Commits known only from the results, in the order of their dates, where there is no git."""
    ordered = sorted(dates_ms.items(), key=lambda item: (item[1], item[0]))
    return Commits(
        tuple(
            Commit(commit, (), date_ms // 1000, "author unknown", "(not in this clone)", position)
            for position, (commit, date_ms) in enumerate(ordered)
        ),
        absent=frozenset(dates_ms),
    )


def _url(repo: Path) -> str:
    """The web address of the repository, where its origin is a public one."""
    try:
        origin = _git(repo, "config", "--get", "remote.origin.url").strip()
    except ValueError:
        return ""
    if origin.startswith("git@") and ":" in origin:
        origin = "https://" + origin[4:].replace(":", "/", 1)
    web = origin.removesuffix(".git")
    # Credentials in an address must not end up in a published page.
    return web if web.startswith("https://") and "@" not in web else ""


def _beginning(repo: Path, *arguments: str) -> str:
    """The first of what git writes: a commit may change more than anybody reads."""
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    command = ["git", "-C", str(repo), *arguments]
    try:
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            assert process.stdout is not None
            written = process.stdout.read(_MOST_BYTES)
            if len(written) == _MOST_BYTES:
                process.kill()
    except FileNotFoundError:
        raise ValueError("git was not found: install it or give its folder in PATH") from None
    if process.returncode != 0 and len(written) < _MOST_BYTES:
        raise ValueError(f"{repo}: git {arguments[0]} failed")
    return written.decode("utf-8", "replace")


def _git(repo: Path, *arguments: str) -> str:
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", "-C", str(repo), *arguments],
            env=environment,
            capture_output=True,
            check=False,
        )
    except FileNotFoundError:
        raise ValueError("git was not found: install it or give its folder in PATH") from None
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise ValueError(f"{repo}: git {arguments[0]} failed: {said}")
    return done.stdout.decode("utf-8", "replace")
