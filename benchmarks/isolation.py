"""Keeps the measured kernels and the yardstick apart: a commit's package, today's benchmarks.

The package of a commit is exported alone into a folder of its own (the *site*). Beside it stands a
*harness* folder with links to today's ``benchmarks`` and ``reports``. A measuring process has these
two on its path, and nothing of the checkout: today's kernels cannot be imported by accident.
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.configuration import ROOT, Package, load

PATH_VARIABLE = "ASV_PYTHONPATH"  # what asv's runner puts on sys.path
SITE_VARIABLE = "WARPWATCH_SITE"
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


def _git(repository: Path, *arguments: str) -> bytes:
    try:
        return subprocess.run(
            ["git", "-C", str(repository), *arguments], check=True, capture_output=True
        ).stdout
    except subprocess.CalledProcessError as error:
        raise ValueError(
            f"git {' '.join(arguments)} failed in {repository}: {error.stderr.decode().strip()}"
        ) from error


def commit_hash(revision: str, repository: Path = ROOT) -> str:
    """The 40 digits of what git knows as ``revision``; ``ValueError`` where it knows none."""
    arguments = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    try:
        return _git(repository, *arguments).decode().strip()
    except ValueError as error:
        raise ValueError(f"{revision!r} is no commit of {repository}") from error


def last_touched(commit: str, repository: Path = ROOT, package: Package | None = None) -> str:
    """The newest commit up to ``commit`` that changed the package, if it left the very same one;
    else ``commit`` itself."""
    path = (package or load()).path
    found = _git(repository, "rev-list", "--max-count=1", commit, "--", path).decode().strip()
    if not found:
        return commit
    trees = {_git(repository, "rev-parse", "--verify", f"{one}:{path}") for one in (commit, found)}
    return found if len(trees) == 1 else commit


def export(
    commit: str | None, site: Path, repository: Path = ROOT, package: Package | None = None
) -> Measured:
    """Write the package of ``commit`` (``None``: the working tree, edits included) into ``site``.

    Whatever stood in ``site`` is replaced. Raises ``ValueError`` if the commit is unknown or does
    not hold the package.
    """
    package = package or load()
    if commit is None:
        source = repository / package.path
        if not source.is_dir():
            raise ValueError(f"no folder {package.path} in {repository}: nothing to measure")
        name, tree = "working tree", "working tree"
    else:
        name = commit_hash(commit, repository)
        try:
            tree = _git(repository, "rev-parse", f"{name}:{package.path}").decode().strip()
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
        archive = _git(repository, "archive", "--format=tar", name, package.path)
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            if hasattr(tarfile, "data_filter"):
                tar.extractall(unpacked, filter="data")
            else:  # Python before 3.11.4, as Debian 12 has it; git's archives climb out nowhere
                tar.extractall(unpacked)
        shutil.move(unpacked / package.path, target)
        shutil.rmtree(unpacked)
    measured = Measured(package.name, name, tree, str(site.resolve()))
    (site / _STAMP).write_text(json.dumps(asdict(measured)), encoding="utf-8")
    return measured


def link_harness(folder: Path) -> Path:
    """Make ``folder`` hold today's yardstick and judge, without the kernels beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("benchmarks", "reports"):
        link = folder / name
        if link.is_symlink() and link.readlink() == ROOT / name:
            continue
        link.unlink(missing_ok=True)
        link.symlink_to(ROOT / name, target_is_directory=True)
    return folder


def search_path(site: Path, harness: Path, extra: str = "") -> str:
    """The path of a measuring process: the commit's package first, then the harness."""
    parts = [str(site.resolve()), str(harness.resolve())]
    return os.pathsep.join(parts + ([extra] if extra else []))


def subprocess_environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for a subprocess (a worker, ncu) that must see the same pair as this one.

    Inside a measuring process the path comes from ``ASV_PYTHONPATH``, which no other Python
    reads; it is handed on as ``PYTHONPATH``. Elsewhere the checkout itself is the pair.
    """
    environment = dict(os.environ if base is None else base)
    path = environment.get(PATH_VARIABLE) or os.pathsep.join(
        part for part in (str(ROOT), environment.get("PYTHONPATH", "")) if part
    )
    environment["PYTHONPATH"] = path
    return environment


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
    origin = Path(spec.origin).resolve() if spec is not None and spec.origin else None
    if origin is None or not origin.is_relative_to(Path(site).resolve()):
        raise RuntimeError(
            f"expected package {found.package!r} of commit {found.commit[:8]} from {site}, "
            f"but Python finds {origin}: remove the other {found.package!r} from the path"
        )
    return found
