"""Measures a library's history in a folder of its own, outside this repository."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from tools.gallery.libraries import Library
from tools.histories.places import repository
from warpwatch.project import FILE_VARIABLE

CLEAN, REGRESSED, INCONCLUSIVE = 0, 1, 3


def missing(folder: Path, library: Library) -> list[str]:
    """Say how a clone or a package is brought that is not there.

    Args:
        folder: Holds the clones.
        library: The library.

    Returns:
        The commands; none where all is there.
    """
    commands = []
    if repository(folder, library.source) is None:
        into = folder / library.source.replace("/", "+")
        commands.append(f"git clone --bare {library.address} {into}")
    absent = [one for one in library.needs if not _is_installed(one)]
    if absent:
        commands.append(f"{sys.executable} -m pip install {' '.join(absent)}")
    return commands


def _is_installed(requirement: str) -> bool:
    name, _, wanted = requirement.partition("==")
    try:
        return metadata.version(name) == (wanted or metadata.version(name))
    except metadata.PackageNotFoundError:
        return False


def prepare(folder: Path, library: Library) -> Path:
    """Make the folder in which a user of the library would run Warpwatch.

    Only the package is checked out: its repository may hold much else.

    Args:
        folder: Holds the clones.
        library: The library.

    Returns:
        The folder, with ``warpwatch.toml`` and the working copy ``source``.

    Raises:
        ValueError: The clone lacks the commit that ``source.toml`` names.
    """
    clone = repository(folder, library.source)
    assert clone is not None, f"{library.source} is not in {folder}"
    place = folder / library.name
    place.mkdir(exist_ok=True)
    text = library.configuration.read_text(encoding="utf-8")
    elsewhere = text.replace("[package]\n", '[package]\nrepository = "source"\n', 1)
    (place / "warpwatch.toml").write_text(elsewhere, encoding="utf-8")
    source = place / "source"
    if not source.exists():
        _git("clone", "--quiet", "--shared", "--no-checkout", str(clone.resolve()), str(source))
        _git("-C", str(source), "sparse-checkout", "set", library.package.path)
    try:
        _git("-C", str(source), "checkout", "--quiet", "--detach", library.head)
    except ValueError as error:
        raise ValueError(f"{clone} lacks commit {library.head}: fetch it. {error}") from error
    return place


def measure(place: Path, library: Library) -> None:
    """Measure the commits; those that have results already are left out.

    Args:
        place: The folder that :func:`prepare` made.
        library: The library.

    Raises:
        ValueError: The measurement stopped.
    """
    _warpwatch(place, library, "history", *library.chosen, good=(CLEAN, INCONCLUSIVE))


def report(place: Path, library: Library) -> Path:
    """Write the report.

    Args:
        place: The folder that :func:`prepare` made.
        library: The library.

    Returns:
        The folder of the site.

    Raises:
        ValueError: There are no results, or the report cannot be written.
    """
    if not (place / ".asv" / "results").is_dir():
        raise ValueError(f"{place}: {library.name} has no results yet: add --measure")
    site = place / "site"
    named = ("--out", str(site), "--project", library.title)
    _warpwatch(place, library, "report", *named, good=(CLEAN, REGRESSED, INCONCLUSIVE))
    return site


def _warpwatch(place: Path, library: Library, *arguments: str, good: tuple[int, ...]) -> None:
    environment = {key: value for key, value in os.environ.items() if key != FILE_VARIABLE}
    environment |= dict(one.split("=", 1) for one in library.environment)
    command = [sys.executable, "-m", "warpwatch", *arguments]
    code = subprocess.run(command, cwd=place, env=environment).returncode
    if code not in good:
        raise ValueError(f"warpwatch {' '.join(arguments)} in {place}: exit code {code}")


def _git(*arguments: str) -> None:
    done = subprocess.run(("git", *arguments), capture_output=True, timeout=600)
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise ValueError(f"git {' '.join(arguments)} failed: {said[-500:]}")
