"""Keeps the measured package and the harness apart: a commit's package, today's harness.

The package of a commit is exported into a folder of its own (the *site*). Next to it stands a
*harness* folder with links to today's ``warpwatch`` and to the modules of workloads and peers. A
measuring process has these two on its path, and nothing else of the project: the package of the
working tree cannot be imported by accident.
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.machinery import ModuleSpec
from pathlib import Path

import warpwatch
from warpwatch import project

from .package import SITE_VARIABLE as SITE_VARIABLE
from .package import Package, load

PATH_VARIABLE = "ASV_PYTHONPATH"  # what asv's runner puts on sys.path
RESULTS_VARIABLE = "WARPWATCH_RESULTS"
QUEUE_VARIABLE = "WARPWATCH_QUEUE"  # runs of asv at one time have environments of their own
_STAMP = "measured.json"


@dataclass(frozen=True)
class Measured:
    """Which package a process measures: the commit, the git tree of the package, where it lies."""

    package: str
    commit: str
    tree: str
    site: str


def git(repository: Path, *arguments: str) -> bytes:
    """What git prints; ``ValueError`` with its own words where it fails."""
    try:
        return subprocess.run(
            ["git", "-C", str(repository), *arguments], check=True, capture_output=True
        ).stdout
    except FileNotFoundError as error:
        raise ValueError("git is not on the PATH: install it") from error
    except subprocess.CalledProcessError as error:
        if b"not a git repository" in error.stderr:
            raise ValueError(
                f"{repository} is no git repository: run in a clone, begin one with `git init` and "
                "commit the package, or set `repository` in [package]"
            ) from error
        raise ValueError(
            f"git {' '.join(arguments)} failed in {repository}: {error.stderr.decode().strip()}"
        ) from error


def check_top(repository: Path) -> None:
    """Refuse a folder inside a repository: git's paths count from the top.

    Raises:
        ValueError: The folder is no repository, or its top is above; the message names it.
    """
    below = git(repository, "rev-parse", "--show-prefix").decode().strip().rstrip("/")
    if below:
        levels = "/".join(".." for _ in Path(below).parts)
        raise ValueError(
            f"{repository} lies inside a repository: set repository = {levels!r} in [package], and "
            f"let `path` begin with {below}/"
        )


def commit_hash(revision: str, repository: Path | None = None) -> str:
    """The 40 digits of what git knows as ``revision``; ``ValueError`` where it knows none."""
    repository = repository or load().repository_path
    arguments = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    try:
        return git(repository, *arguments).decode().strip()
    except ValueError as error:
        git(repository, "rev-parse", "--git-dir")  # says so where there is no repository at all
        raise ValueError(
            f"{revision!r} is no commit of {repository}: expected a hash, a branch or a tag that "
            "`git log` knows there; `git fetch origin pull/NUMBER/head` brings those of a pull "
            "request"
        ) from error


def last_touched(
    commit: str, repository: Path | None = None, package: Package | None = None
) -> str:
    """The newest commit up to ``commit`` that changed the package, if it left the very same one;
    else ``commit`` itself."""
    package = package or load()
    path, repository = package.path, repository or package.repository_path
    found = git(repository, "rev-list", "--max-count=1", commit, "--", path).decode().strip()
    if not found:
        return commit
    trees = {git(repository, "rev-parse", "--verify", f"{one}:{path}") for one in (commit, found)}
    return found if len(trees) == 1 else commit


def export(
    commit: str | None,
    site: Path,
    repository: Path | None = None,
    package: Package | None = None,
) -> Measured:
    """Write the package of ``commit`` (``None``: the working tree, edits included) into ``site``.

    Whatever stood in ``site`` is replaced. Raises ``ValueError`` if the commit is unknown or does
    not hold the package.
    """
    package = package or load()
    repository = repository or package.repository_path
    if commit is None:
        source = repository / package.path
        if not source.is_dir():
            raise ValueError(f"no folder {package.path} in {repository}: nothing to measure")
        name, tree = "working tree", "working tree"
    else:
        name = commit_hash(commit, repository)
        try:
            tree = git(repository, "rev-parse", f"{name}:{package.path}").decode().strip()
        except ValueError as error:
            raise ValueError(
                f"commit {name[:8]} has no folder {package.path}: nothing to measure"
            ) from error
    shutil.rmtree(site, ignore_errors=True)
    target = site / package.name.replace(".", "/")
    target.parent.mkdir(parents=True, exist_ok=True)
    if commit is None:
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        unpacked = site / ".unpacked"
        unpack(repository, name, [package.path], unpacked)
        shutil.move(unpacked / package.path, target)
        shutil.rmtree(unpacked)
    measured = Measured(package.name, name, tree, str(site.resolve()))
    (site / _STAMP).write_text(json.dumps(asdict(measured)), encoding="utf-8")
    return measured


def unpack(repository: Path, commit: str, folders: Sequence[str], into: Path) -> None:
    """Write ``folders`` of a commit below ``into``. Raises ``ValueError`` if it has not all."""
    archive = git(repository, "archive", "--format=tar", commit, *folders)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(into, filter="data")
        else:  # Python before 3.11.4, as Debian 12 has it; git's archives climb out nowhere
            tar.extractall(into)


def link_harness(folder: Path) -> Path:
    """Make ``folder`` hold links to the harness and to the modules of workloads and peers.

    Args:
        folder: Made where it is missing. Other links in it stay.

    Returns:
        ``folder``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for source in (_HERE, *_modules_of_project()):
        link = folder / source.name
        if link.is_symlink() and link.readlink() == source:
            continue
        # Several commands may begin at once, and threads of one: the link is made elsewhere and
        # put in its place.
        with tempfile.TemporaryDirectory(prefix=f".{source.name}.", dir=folder) as elsewhere:
            made = Path(elsewhere, source.name)
            made.symlink_to(source, target_is_directory=source.is_dir())
            made.replace(link)
    return folder


_HERE = Path(warpwatch.__file__).resolve().parent


def _modules_of_project() -> list[Path]:
    """The top-level modules of workloads and peers that lie in the project and are not part of the
    measured package."""
    package = load()
    found: list[Path] = []
    for name in filter(None, (package.workloads, package.peers)):
        top = name.split(".")[0]
        places = [root / one for root in package.workload_roots for one in (top, f"{top}.py")]
        here = next((place for place in places if place.exists()), None)
        if here is not None and top != package.name.split(".")[0] and here not in found:
            found.append(here)
    return found


def foreign_path(value: str) -> str:
    """What of a ``PYTHONPATH`` a measuring process keeps: asv and Triton may come from there, the
    package of the working tree may not.

    Args:
        value: Folders, separated as the system does.

    Returns:
        The same without the project's folder, its sources and the harness's own.
    """
    package = load()
    own = {project.folder().resolve(), package.source_root, package.repository_path}
    if (_HERE.parent / "pyproject.toml").is_file():
        own.add(_HERE.parent)  # a checkout: other code lies next to the harness
    parts = [part for part in value.split(os.pathsep) if part and Path(part).resolve() not in own]
    return os.pathsep.join(parts)


def search_path(site: Path, harness: Path, extra: str = "") -> str:
    """The path of a measuring process: the commit's package first, then the harness."""
    parts = [str(site.resolve()), str(harness.resolve())]
    return os.pathsep.join(parts + ([extra] if extra else []))


def subprocess_environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for a subprocess that must see the same package and harness as this one.

    Inside a measuring process the path comes from ``ASV_PYTHONPATH``, which no other Python
    reads; it is handed on as ``PYTHONPATH``. Elsewhere the working tree is the package.

    Args:
        base: The environment to extend, by default this process's.

    Returns:
        The environment with ``PYTHONPATH`` and the configuration file set.
    """
    environment = dict(os.environ if base is None else base)
    path = environment.get(PATH_VARIABLE)
    if not path:
        parts = [*_working_tree(), environment.get("PYTHONPATH", "")]
        path = os.pathsep.join(part for part in parts if part)
    environment["PYTHONPATH"] = path
    environment.setdefault(project.FILE_VARIABLE, str(project.configuration_file()))
    return environment


def path_of_the_harness() -> str:
    """What a ``PYTHONPATH`` needs so that a process finds the harness; empty where it is installed.

    Returns:
        A folder, or an empty text.
    """
    return "" if _is_installed() else str(_HERE.parent)


def _working_tree() -> list[str]:
    """The package of the working tree and the harness, for Python's path. Without a configuration
    any package of the working folder can be imported."""
    if not project.configuration_file().is_file():
        return [str(Path.cwd()), *filter(None, [path_of_the_harness()])]
    harness = link_harness(project.folder() / ".asv" / "harness")
    return [str(load().source_root), str(harness)]


def _is_installed() -> bool:
    """Whether every Python process finds the harness, whatever its path."""
    try:
        folder = Path(str(metadata.distribution("warpwatch").locate_file(""))).resolve()
    except metadata.PackageNotFoundError:
        return False
    # `pip install --target` puts it where only the path of this process leads.
    ours = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return folder not in {Path(one).resolve() for one in ours}


def measured() -> Measured | None:
    """What this process measures, or ``None`` outside a measuring process.

    Raises ``RuntimeError`` when the package that can be imported is not the exported one: then
    every value of this process would speak of other code than it names.
    """
    site = os.environ.get(SITE_VARIABLE)
    if not site:
        return None
    stamp = json.loads((Path(site) / _STAMP).read_text(encoding="utf-8"))
    found = Measured(**stamp)
    spec = importlib.util.find_spec(found.package)
    origin = _origin(spec)
    if origin is None or not origin.is_relative_to(Path(site).resolve()):
        raise RuntimeError(
            f"expected package {found.package!r} of commit {found.commit[:8]} from {site}, "
            f"but Python finds {origin}: remove the other {found.package!r} from the path"
        )
    return found


def _origin(spec: ModuleSpec | None) -> Path | None:
    """Where Python finds a package, also one without an ``__init__.py``."""
    if spec is None:
        return None
    if spec.origin:
        return Path(spec.origin).resolve()
    places = list(spec.submodule_search_locations or ())
    return Path(places[0]).resolve() if places else None
