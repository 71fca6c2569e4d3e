"""The libraries of the gallery: where each comes from, and which of its commits are measured."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from warpwatch.config.package import Package, load

HERE = Path(__file__).parent / "libraries"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SOURCE = re.compile(r"[\w.-]+/[\w.-]+")
_NEEDED = ("title", "source", "head")
_LISTS = ("touching", "needs", "environment")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*=\S*")


@dataclass(frozen=True)
class Library:
    """A library of the gallery.

    Attributes:
        name: The name of its folder, and of its page.
        folder: The folder with ``source.toml``, ``warpwatch.toml`` and ``checked.csv``.
        title: As its authors write it.
        source: ``owner/name`` on GitHub.
        head: The whole hash of the newest commit that is looked at.
        tags: Only commits with a tag that matches; every commit where empty.
        touching: Only commits that change one of these paths; the package's where empty.
        commits: How many of them, the newest; 0 means all.
        needs: What its import needs beyond torch and Triton, as ``name==version``.
        environment: Variables that its import asks for, as ``NAME=value``.
    """

    name: str
    folder: Path
    title: str
    source: str
    head: str
    tags: str = ""
    touching: tuple[str, ...] = ()
    commits: int = 0
    needs: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()

    @property
    def configuration(self) -> Path:
        """The ``warpwatch.toml`` that a user of the library would write."""
        return self.folder / "warpwatch.toml"

    @property
    def package(self) -> Package:
        """The configuration, read; ``ValueError`` lists its mistakes."""
        return load(self.configuration)

    @property
    def address(self) -> str:
        """The library on GitHub."""
        return f"https://github.com/{self.source}"

    @property
    def chosen(self) -> list[str]:
        """The arguments of ``warpwatch history`` that choose the commits."""
        which = [word for path in self.touching for word in ("--touching", path)]
        which += ["--tags", self.tags] if self.tags else []
        return ["--commits", str(self.commits), *which]


def libraries(folder: Path | None = None) -> dict[str, Library]:
    """Read every library of the gallery.

    Args:
        folder: Holds a folder for each library; by default the one next to this module.

    Returns:
        The libraries by name.

    Raises:
        ValueError: Some of the files have mistakes; all of them are listed.
    """
    found, mistakes = {}, []
    for path in sorted((folder or HERE).glob("*/source.toml")):
        try:
            found[path.parent.name] = _library(path)
        except ValueError as error:
            mistakes.append(str(error))
    if mistakes:
        raise ValueError("\n".join(mistakes))
    return found


def _library(path: Path) -> Library:
    try:
        data: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: cannot be read as TOML: {error}") from error
    known = {one.name for one in fields(Library)} - {"name", "folder"}
    mistakes = [f"unknown key {key!r}: expected {sorted(known)}" for key in set(data) - known]
    mistakes += [f"{key}: missing" for key in _NEEDED if key not in data]
    if not _COMMIT.fullmatch(str(data.get("head", "0" * 40))):
        mistakes.append(f"head: expected a whole commit hash, got {data['head']!r}")
    if not _SOURCE.fullmatch(str(data.get("source", "owner/name"))):
        mistakes.append(f"source: expected owner/name, got {data['source']!r}")
    commits = data.get("commits", 0)
    if not isinstance(commits, int) or commits < 0:
        mistakes.append(f"commits: expected 0 (all) or more, got {commits!r}")
    for key in _LISTS:
        given = data.get(key, [])
        if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
            mistakes.append(f"{key}: expected a list of texts, got {given!r}")
        elif key == "environment":
            wrong = [one for one in given if not _VARIABLE.fullmatch(one)]
            mistakes += [f"environment: expected NAME=value, got {one!r}" for one in wrong]
    if data.get("touching") and data.get("tags"):
        mistakes.append("expected tags or touching, got both")
    if mistakes:
        raise ValueError("\n".join(f"{path}: {one}" for one in mistakes))
    lists = {key: tuple(data.get(key, ())) for key in _LISTS}
    library = Library(name=path.parent.name, folder=path.parent, **data | lists)
    if not library.package.calls:
        raise ValueError(f"{library.configuration}: expected a [[workload]]; there is none")
    return library
