"""Where each history is expected on this machine, and its results unpacked."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tomllib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from .tables import HERE

_LONG_S = 600


@dataclass(frozen=True)
class Place:
    """A public history: two repositories on GitHub, and the commits that the figures were taken at.

    ``folder`` is where the results lie in the first repository.
    """

    name: str
    results: str
    results_commit: str
    folder: str
    sources: str
    sources_commit: str
    branch: str = "main"


def places() -> dict[str, Place]:
    """Every history, by its name."""
    text = (HERE / "repositories.toml").read_text(encoding="utf-8")
    return {name: Place(name=name, **row) for name, row in tomllib.loads(text).items()}


def repository(folder: Path, name: str) -> Path | None:
    """The git directory of a repository below ``folder``; ``None`` where it is not there."""
    base = folder / name.replace("/", "+")
    for path in (base, base / ".git", base / "repo", base / "repo" / ".git"):
        if (path / "HEAD").is_file() and (path / "objects").is_dir():
            return path
    return None


def expected(folder: Path, place: Place) -> list[str]:
    """The commands that bring what is missing."""
    return [
        f"git clone --bare https://github.com/{name} {folder / name.replace('/', '+')}"
        for name in (place.results, place.sources)
        if repository(folder, name) is None
    ]


def unpacked(folder: Path, place: Place, into: Path) -> Path:
    """The results of a history as files, unpacked once.

    Names come from a stranger's repository. Only result files in a machine's folder are written,
    and ``benchmarks.json``.
    """
    out = into / place.name / "results"
    done = into / place.name / place.results_commit
    if done.exists():
        return out
    git = repository(folder, place.results)
    assert git is not None, f"{place.results} is not in {folder}"
    depth = len(PurePosixPath(place.folder).parts)
    command = ("git", "-C", str(git), "archive", place.results_commit, place.folder)
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as process,
        tarfile.open(fileobj=process.stdout, mode="r|") as archive,
    ):
        for member in archive:
            parts = PurePosixPath(member.name).parts[depth:]
            wanted = member.isreg() and 1 <= len(parts) <= 2 and ".." not in parts
            content = archive.extractfile(member) if wanted else None
            if content is not None and member.name.endswith(".json"):
                path = out.joinpath(*parts)
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as file:
                    shutil.copyfileobj(content, file)
        assert process.stdout is not None
        process.stdout.read()  # git pads the end, and takes a closed pipe for a failure
    if process.returncode:
        raise SystemExit(f"git archive of {place.results} failed")
    done.touch()
    return out


def read(git: Path, *arguments: str) -> str:
    """What git says, asked in a repository."""
    command = ("git", "-C", str(git), *arguments)
    done = subprocess.run(command, check=True, capture_output=True, timeout=_LONG_S)
    return done.stdout.decode("utf-8", "replace")
