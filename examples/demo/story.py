"""What a commit of the demo's history is, and how the history is written into a git repository."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

PACKAGE = Path(__file__).parent / "package"
_FIRST_SECOND = 1_767_225_600  # 2026-01-01; a fixed clock gives every run the same hashes
_HOUR = 3600


@dataclass(frozen=True)
class Edit:
    """In ``file``, the one place that reads ``old`` becomes ``new``. A file that is not there yet
    is made from ``new`` alone."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Move:
    """``old`` becomes ``new``, content and all."""

    old: str
    new: str


@dataclass(frozen=True)
class Planted:
    """What the report must say about a commit: ``cause`` first, and every verdict metric of
    ``changed`` on exactly its targets. The first of them is what was meant, the rest follows from
    it: an extra copy is also another launch, and more work.
    """

    verdict: Literal["regressed", "improved"]
    workload: str
    cause: str
    changed: Mapping[str, tuple[str, ...]]

    @property
    def metric(self) -> str:
        return next(iter(self.changed))

    @property
    def places(self) -> set[tuple[str, str]]:
        """Each metric on each of its targets."""
        return {(metric, target) for metric, found in self.changed.items() for target in found}


@dataclass(frozen=True)
class Commit:
    """A commit; without ``planted`` it must change no verdict metric of any workload."""

    subject: str
    changes: tuple[Edit | Move, ...]
    planted: Planted | None = None


def apply(change: Edit | Move, folder: Path) -> None:
    """Make ``change`` in ``folder``; ``ValueError`` where its old text is not there just once."""
    if isinstance(change, Move):
        target = folder / change.new
        target.parent.mkdir(parents=True, exist_ok=True)
        (folder / change.old).rename(target)
        return
    path = folder / change.file
    if not path.exists():
        if change.old:
            raise ValueError(f"{change.file}: no such file, but the edit expects {change.old!r}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(change.new, encoding="utf-8")
        return
    text = path.read_text(encoding="utf-8")
    if not change.old or text.count(change.old) != 1:
        raise ValueError(
            f"{change.file}: expected exactly one {change.old!r}, found {text.count(change.old)}"
        )
    path.write_text(text.replace(change.old, change.new), encoding="utf-8")


def write(commits: Iterable[Commit], repository: Path) -> dict[str, Commit]:
    """Make ``repository`` with a first commit of the package and then ``commits``.

    Returns each commit's hash with what it was made from, oldest first; the first commit has no
    entry.
    """
    repository.mkdir(parents=True)
    _git(repository, 0, "init", "--quiet", "--initial-branch=main")
    shutil.copytree(
        PACKAGE, repository, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
    )
    _commit(repository, 0, "Six kernels")
    written: dict[str, Commit] = {}
    for number, commit in enumerate(commits, start=1):
        for change in commit.changes:
            try:
                apply(change, repository)
            except ValueError as error:
                raise ValueError(f"commit {number}, {commit.subject!r}: {error}") from error
        written[_commit(repository, number, commit.subject)] = commit
    return written


def _commit(repository: Path, number: int, subject: str) -> str:
    _git(repository, number, "add", "--all")
    _git(repository, number, "commit", "--quiet", "-m", subject)
    return _git(repository, number, "rev-parse", "HEAD").strip()


def _git(repository: Path, number: int, *arguments: str) -> str:
    date = f"{_FIRST_SECOND + number * _HOUR} +0000"
    who = {"NAME": "A. Author", "EMAIL": "author@example.invalid"}
    environment = {
        # Neither the user's settings nor an outer repository's may change the hashes.
        **{key: value for key, value in os.environ.items() if not key.startswith("GIT_")},
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{role}_{key}": who[key] for role in ("AUTHOR", "COMMITTER") for key in who},
        "GIT_AUTHOR_DATE": date,
        "GIT_COMMITTER_DATE": date,
    }
    done = subprocess.run(
        ["git", "-C", str(repository), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"git {' '.join(arguments)} failed: {done.stderr.strip()}")
    return done.stdout
