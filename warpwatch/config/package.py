"""What is measured: the package, where its repository is, its workloads and its sets."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from warpwatch import project

from . import targets as known_targets
from .calls import Call, calls_of, unknown_key

# A folder that keeps what the compilers made, for a run over many commits.
CACHE_VARIABLE = "WARPWATCH_COMPILER_CACHE"
# A folder whose locks count the compilers that runs at one time may have between them.
SLOTS_VARIABLE = "WARPWATCH_COMPILER_SLOTS"
# The socket of a process that has imported torch and Triton, for a run that compiles often.
COMPILE_SERVER_VARIABLE = "WARPWATCH_COMPILE_SERVER"
# Names the exported package in a measuring process.
SITE_VARIABLE = "WARPWATCH_SITE"

_BROUGHT = ("torch", "triton", "asv", "asv_runner", "docker")
_SECTIONS = ("package", "sets", "targets", "workload")
_NEEDED = ("name", "path")
# Offers the workloads of ``[[workload]]`` where no module is named.
_CONFIGURED = "warpwatch.workload.configured"
_OFFERED = ("all_workloads", "fixed_set", "get")  # by every module of workloads
_MODULES = ("name", "workloads", "peers")


@dataclass(frozen=True)
class Sets:
    """Workloads that runs treat apart, each by its name.

    Attributes:
        history: Measured on a GPU when ``WARPWATCH_GPU_SET=history``; empty: all of them.
        history_peers: Peers' workloads (``WORKLOAD @ PEER``) of that set.
        canaries: Workloads whose peers every commit measures. No commit changes a peer, so one that
            moves says that the machine changed.
        canary_peers: The peers that serve as canaries.
        peers: The peers that ``WARPWATCH_GPU_SET=peers`` times at every workload; empty: all.
        host: Workloads whose host time and cold start are read; ``*`` means all of them.
    """

    history: tuple[str, ...] = ()
    history_peers: tuple[str, ...] = ()
    canaries: tuple[str, ...] = ()
    canary_peers: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    host: tuple[str, ...] = ()


@dataclass(frozen=True)
class Package:
    """The measured package.

    Attributes:
        name: What is imported, such as ``fastops`` or ``company.fastops``.
        path: The folder of the repository that holds it, such as ``src/fastops``.
        workloads: The module that offers ``all_workloads``, ``get``, ``select`` and ``fixed_set``;
            by default the one that offers ``[[workload]]``.
        peers: The module whose ``PEERS`` compute the same as the workloads; none where empty.
        workloads_folder: A folder for Python's path in which ``workloads`` is found, beside the
            configuration file's own; relative to that file.
        repository: The git repository that holds the package, relative to the configuration file.
        sets: Workloads that runs treat apart.
        targets: What ``[[workload]]`` is compiled for; empty: the default targets.
        calls: The ``[[workload]]`` of the file.
    """

    name: str
    path: str
    workloads: str = _CONFIGURED
    peers: str = ""
    workloads_folder: str = ""
    repository: str = "."
    sets: Sets = field(default_factory=Sets)
    targets: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()

    @property
    def repository_path(self) -> Path:
        """The repository as an absolute path."""
        return (project.folder() / self.repository).resolve()

    @property
    def source_root(self) -> Path:
        """The folder of the working tree that Python must search to import the package."""
        levels = len(self.name.split(".")) - 1
        return (self.repository_path / self.path).parents[levels]

    @property
    def workload_roots(self) -> tuple[Path, ...]:
        """The folders in which the module of the workloads is looked for."""
        named = [self.workloads_folder] if self.workloads_folder else []
        return tuple((project.folder() / one).resolve() for one in (*named, "."))


def chosen_targets(named: Sequence[str] | None = None) -> list[str]:
    """The targets that a command compiles for.

    Args:
        named: Those that its user named.

    Returns:
        Those named, else those of the configuration, else those compiled for by default.

    Raises:
        ValueError: A target is unknown, or the configuration has mistakes.
    """
    if named:
        return [known_targets.get(one).name for one in named]
    configured = load().targets if project.configuration_file().is_file() else ()
    return list(configured) or [one.name for one in known_targets.TARGETS]


def load(file: Path | None = None) -> Package:
    """Read the configuration.

    Args:
        file: A ``warpwatch.toml``, or a ``pyproject.toml`` with ``[tool.warpwatch]``; by default
            the one that :func:`warpwatch.project.configuration_file` finds.

    Returns:
        The measured package.

    Raises:
        ValueError: The file is missing or has mistakes; all of them are listed.
    """
    path = file or project.configuration_file()
    if not path.is_file():
        raise ValueError(
            f"{path}: no such file. `warpwatch init` writes one; --config FILE names another"
        )
    try:
        data: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{path}: cannot be read as TOML: {error}") from error
    if path.name == "pyproject.toml":
        data = data.get("tool", {}).get(project.SECTION, {})
    unknown = {key: value for key, value in data.items() if key not in _SECTIONS}
    mistakes = [unknown_key(key, _SECTIONS, isinstance(unknown[key], dict)) for key in unknown]
    section = data.get("package")
    if not isinstance(section, dict):
        raise ValueError(f"{path}: expected a section [package] with name and path; it has none")
    mistakes += _package_mistakes(section, path.parent)
    sets, of_sets = _sets(data.get("sets", {}))
    calls, of_calls = calls_of(data.get("workload", []))
    mistakes += of_sets + of_calls + _target_mistakes(data.get("targets", []))
    if calls and "workloads" in section:
        mistakes.append("[package] workloads: leave it out, or [[workload]]: one of them serves")
    if not calls and not of_calls and "workloads" not in section:
        mistakes.append("nothing to measure: expected [[workload]] tables, or a module `workloads`")
    mistakes += _inside_mistakes(section)
    if mistakes:
        raise ValueError(f"{path}: " + "; ".join(mistakes))
    return Package(**section, sets=sets, targets=tuple(data.get("targets", [])), calls=calls)


def _package_mistakes(section: dict[str, Any], folder: Path) -> list[str]:
    known = [one.name for one in fields(Package) if one.name not in ("sets", "targets", "calls")]
    mistakes = [f"[package] {unknown_key(key, known)}" for key in section if key not in known]
    for key in known:
        if key not in section and key not in _NEEDED:
            continue
        value = section.get(key)
        if not isinstance(value, str) or not value:
            mistakes.append(f"[package] {key}: expected a non-empty string, got {value!r}")
        elif key in _MODULES:
            if not all(part.isidentifier() for part in value.split(".")):
                mistakes.append(f"[package] {key}: expected a dotted Python name, got {value!r}")
        elif key == "path":
            if Path(value).is_absolute() or ".." in Path(value).parts:
                expected = "expected a folder inside the repository"
                mistakes.append(f"[package] path: {expected}, got {value!r}")
        elif not (folder / value).is_dir():
            mistakes.append(f"[package] {key}: no folder {value!r} next to the file")
    name, path = section.get("name"), section.get("path")
    if isinstance(name, str) and isinstance(path, str) and not mistakes:
        mistakes += _place_mistakes(name, path)
    return mistakes


def _place_mistakes(name: str, path: str) -> list[str]:
    """``path`` ends with the parts of ``name``: else Python cannot import it from there."""
    parts = name.split(".")
    if list(Path(path).parts[-len(parts) :]) == parts:
        return []
    expected = "/".join(parts)
    return [f"[package] path: expected a folder that ends in {expected} for {name}, got {path!r}"]


def _inside_mistakes(section: dict[str, Any]) -> list[str]:
    """Modules inside the measured package would come with each commit: another yardstick each."""
    package = section.get("name")
    if not isinstance(package, str):
        return []
    return [
        f"[package] {key}: {value} lies inside {package}, so that each commit would be measured "
        "by its own; how it is measured is today's: move the module out of the package"
        for key in ("workloads", "peers")
        if isinstance(value := section.get(key), str) and f"{value}.".startswith(f"{package}.")
    ]


def _target_mistakes(named: Any) -> list[str]:
    known = [one.name for one in known_targets.KNOWN]
    if not isinstance(named, list):
        return [f"targets: expected a list of {known_targets.choices()}, got {named!r}"]
    return [
        f"targets: unknown target {one!r}, expected one of {known_targets.choices()}"
        for one in named
        if one not in known
    ]


def _sets(section: Any) -> tuple[Sets, list[str]]:
    if not isinstance(section, dict):
        return Sets(), ["[sets]: expected lists of workloads' names"]
    known = [one.name for one in fields(Sets)]
    mistakes = [f"[sets] {unknown_key(key, known)}" for key in section if key not in known]
    found: dict[str, tuple[str, ...]] = {}
    for key in known:
        value = section.get(key, [])
        if isinstance(value, list) and all(isinstance(one, str) for one in value):
            found[key] = tuple(value)
        else:
            mistakes.append(f"[sets] {key}: expected a list of workloads' names, got {value!r}")
    return Sets(**found), mistakes


def workloads() -> ModuleType:
    """Import the configured workloads module.

    Returns:
        The module named by ``workloads`` in ``[package]``.

    Raises:
        ValueError: It cannot be imported or offers no workloads, two of them have one name, or
            ``[sets]`` names one that is not there.
    """
    package = load()
    module = _imported(package.workloads, package)
    # A measuring process is started by one that has looked.
    if SITE_VARIABLE not in os.environ and (wrong := _wrong_workloads(module, package)):
        raise ValueError(f"{project.configuration_file()}: {wrong}")
    return module


@cache
def _wrong_workloads(module: ModuleType, package: Package) -> str:
    """What is wrong with a module of workloads, and how to mend it; empty where nothing is."""
    name = module.__name__
    if lacking := [one for one in _OFFERED if not callable(getattr(module, one, None))]:
        wanted = f"expected the functions {', '.join(_OFFERED)}"
        return f"[package] workloads: {name} has no {' '.join(lacking)}: {wanted}"
    try:
        names = [one.name for one in module.all_workloads()]
        module.fixed_set()
    except Exception as error:  # the user's module may raise anything
        return f"[package] workloads: {name}: {type(error).__name__}: {error}. Mend the module"
    if twice := sorted({one for one in names if names.count(one) > 1}):
        return f"two workloads are called {twice[0]!r}: rename one of them"
    sets = package.sets
    unknown = sorted({*sets.history, *sets.canaries, *sets.host} - {*names, "*"})
    if unknown:
        near = difflib.get_close_matches(unknown[0], names, n=3, cutoff=0.4)
        hint = f"did you mean {', '.join(near)}?" if near else "none is alike"
        return f"[sets] names {unknown[0]!r}, which is no workload: {hint}"
    return ""


def peers() -> ModuleType | None:
    """Import the configured module of peers; ``None`` where none is configured."""
    package = load()
    return _imported(package.peers, package) if package.peers else None


def _imported(name: str, package: Package) -> ModuleType:
    # A measuring process has links to what it may import, and nothing else of the project.
    if SITE_VARIABLE not in os.environ:
        _find(name, package)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in _BROUGHT:
            raise  # an extra brings it: the command line says which
        raise ValueError(_unimportable(name, error)) from error
    except Exception as error:  # the user's module may raise anything
        raise ValueError(_unimportable(name, error)) from error


def _find(name: str, package: Package) -> None:
    """Put the folder that holds a module of the project on Python's path."""
    for root in package.workload_roots:
        if (root / name.split(".")[0]).is_dir() or (root / f"{name}.py").is_file():
            if str(root) not in sys.path:
                sys.path.append(str(root))
            return


def _unimportable(name: str, error: Exception) -> str:
    return (
        f"{project.configuration_file()}: [package] cannot import {name}: "
        f"{type(error).__name__}: {error}. Mend the name or the module"
    )
