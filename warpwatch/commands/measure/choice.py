"""Which commits ``history`` measures: those that touch a path, or those of tags."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from warpwatch.config import isolation
from warpwatch.config.package import load
from warpwatch.judge.model.commits import tags_of


def commits_that_touch(
    paths: str | Sequence[str], count: int, repository: Path | None = None
) -> list[str]:
    """List the newest commits that change a path.

    Args:
        paths: One path of the repository or several.
        count: How many commits; 0 means all of them.
        repository: The repository; by default the configured one.

    Returns:
        Their hashes, newest first.

    Raises:
        ValueError: The folder is no repository, or is not its top.
    """
    repository = _checked(repository)
    named = [paths] if isinstance(paths, str) else list(paths)
    limit = [f"--max-count={count}"] if count else []
    log = isolation.git(repository, "log", "--format=%H", *limit, "HEAD", "--", *named)
    return log.decode().split()


def commits_of_tags(pattern: str, count: int, repository: Path | None = None) -> list[str]:
    """List the newest commits with a tag, as far as the history of HEAD holds them.

    Args:
        pattern: Matches the names of tags, as in ``git tag --list``.
        count: How many commits; 0 means all of them.
        repository: The repository; by default the configured one.

    Returns:
        Their hashes in the order of history, newest first.

    Raises:
        ValueError: No tag matches, or the history of HEAD holds none that do.

    Example:
        ``commits_of_tags("v*", 10)`` gives the commits of the ten newest releases.
    """
    repository = _checked(repository)
    tagged = set(tags_of(repository, pattern).values())
    if not tagged:
        known = list(tags_of(repository))
        shown = f"such as {', '.join(known[-3:])}" if known else "none at all"
        raise ValueError(
            f"--tags {pattern!r}: no tag of {repository} matches; it has {len(known)}, {shown}"
        )
    history = isolation.git(repository, "rev-list", "HEAD").decode().split()
    found = [commit for commit in history if commit in tagged]
    if not found:
        raise ValueError(
            f"--tags {pattern!r}: the history of HEAD holds none of the {len(tagged)} tagged "
            "commits that match: check out the branch that they lie on"
        )
    return found[:count] if count else found


def _checked(repository: Path | None) -> Path:
    repository = repository or load().repository_path
    isolation.check_top(repository)
    return repository
