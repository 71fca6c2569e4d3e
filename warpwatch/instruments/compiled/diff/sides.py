"""Where measured code comes from: the working tree, a commit, or another Triton version."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from warpwatch import project
from warpwatch.config import isolation, tritons

_VERSION = re.compile(r"^(?:triton==)?(?P<version>\d+\.\d+\.\d+\S*)$")
_WORKING_TREE = (".", "worktree", "working-tree")


@dataclass(frozen=True)
class Side:
    """``label`` names it in tables; ``environment`` is what its processes run in."""

    label: str
    environment: dict[str, str]


def is_version(name: str) -> bool:
    """Whether ``name`` is a Triton version."""
    return _VERSION.match(name) is not None


def is_commit(name: str) -> bool:
    """Whether ``name`` is neither the working tree nor a Triton version."""
    return name not in _WORKING_TREE and not is_version(name)


@contextmanager
def opened(name: str) -> Iterator[Side]:
    """The side called ``name``: ``.`` for the working tree, ``3.9.0`` for a Triton version, else a
    commit of this repository. Its files live as long as the context."""
    version = _VERSION.match(name)
    if version and (mistake := tritons.mistake(version["version"])):
        raise ValueError(mistake)
    if name in _WORKING_TREE:
        yield Side("working tree", isolation.subprocess_environment())
    elif version:
        environment = isolation.subprocess_environment()
        folder = triton_folder(version["version"])
        if folder is not None:
            environment["PYTHONPATH"] = os.pathsep.join([str(folder), environment["PYTHONPATH"]])
        yield Side(f"triton {version['version']}", environment)
    else:
        with TemporaryDirectory(prefix="side-") as folder_name:
            folder = Path(folder_name)
            found = isolation.export(name, folder / "site")
            harness = isolation.link_harness(folder / "harness")
            environment = isolation.subprocess_environment()
            kept = isolation.foreign_path(environment["PYTHONPATH"])
            path = isolation.search_path(folder / "site", harness, kept)
            environment |= {
                "PYTHONPATH": path,
                "PYTHONSAFEPATH": "1",  # or the checkout's own kernels would come first
                isolation.SITE_VARIABLE: str(folder / "site"),
            }
            yield Side(found.commit[:8], environment)


def triton_folder(version: str) -> Path | None:
    """A folder that holds this Triton alone, installed on first use; ``None`` where it is the one
    Python has. ``ValueError`` where it cannot be had."""
    try:
        if importlib.metadata.version("triton") == version:
            return None
    except importlib.metadata.PackageNotFoundError:
        pass
    return installed_alone(f"triton=={version}", project.folder() / ".asv" / "triton" / version)


def installed_alone(requirement: str, folder: Path) -> Path:
    """Install one wheel without what it requires, on first use.

    Args:
        requirement: Such as ``triton==3.9.0``.
        folder: Where it is to lie.

    Returns:
        The folder.

    Raises:
        ValueError: It cannot be had.
    """
    if folder.exists():
        return folder
    print(f"installing {requirement} into {folder}", file=sys.stderr)
    partial = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--target", str(partial), requirement]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        shutil.rmtree(partial, ignore_errors=True)
        said = [line for line in done.stderr.strip().splitlines() if "WARNING" not in line]
        raise ValueError(f"cannot install {requirement}: {(said or ['pip said nothing'])[-1]}")
    try:
        partial.rename(folder)
    except OSError:  # someone else was first
        shutil.rmtree(partial, ignore_errors=True)
    return folder
