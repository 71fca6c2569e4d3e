"""What is under the harness: the package that is measured and the module of its workloads."""

from __future__ import annotations

import importlib
import os
import sys
import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
FILE_VARIABLE = "WARPWATCH_CONFIG"
# A folder that keeps what the compilers made, for a run over many commits.
CACHE_VARIABLE = "WARPWATCH_COMPILER_CACHE"


@dataclass(frozen=True)
class Package:
    """The measured package.

    ``name`` is what is imported, ``path`` the folder of the measured repository that holds it,
    ``workloads`` the module that offers ``all_workloads``, ``get``, ``select`` and ``fixed_set``.
    ``workloads_folder`` is put on the path of measuring processes for a ``workloads`` module that
    does not lie in ``benchmarks``; relative to the configuration file.
    """

    name: str
    path: str
    workloads: str
    workloads_folder: str = ""


def load(file: Path | None = None) -> Package:
    """Read ``[package]`` of ``file``, by default ``$WARPWATCH_CONFIG`` or ``warpwatch.toml``.

    Raises ``ValueError`` that lists every mistake of the file.
    """
    path = file or Path(os.environ.get(FILE_VARIABLE) or ROOT / "warpwatch.toml")
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{path}: cannot be read as TOML: {error}") from error
    mistakes = [f"unknown section [{key}]" for key in data if key != "package"]
    section = data.get("package")
    if not isinstance(section, dict):
        raise ValueError(
            f"{path}: expected a section [package] with name, path and workloads; it has none"
        )
    known = [field.name for field in fields(Package)]
    mistakes += [f"[package] {key}: unknown key" for key in section if key not in known]
    for key in known:
        if key == "workloads_folder" and key not in section:
            continue
        value = section.get(key)
        if not isinstance(value, str) or not value:
            mistakes.append(f"[package] {key}: expected a non-empty string, got {value!r}")
        elif key == "workloads_folder":
            if not (path.parent / value).is_dir():
                mistakes.append(f"[package] workloads_folder: no folder {value!r} beside the file")
        elif key != "path" and not all(part.isidentifier() for part in value.split(".")):
            mistakes.append(f"[package] {key}: expected a dotted Python name, got {value!r}")
        elif key == "path" and (Path(value).is_absolute() or ".." in Path(value).parts):
            mistakes.append(f"[package] path: expected a folder inside the repository: {value!r}")
    if mistakes:
        raise ValueError(f"{path}: " + "; ".join(mistakes))
    package = Package(**section)
    if package.workloads_folder:
        folder = str((path.parent / package.workloads_folder).resolve())
        package = replace(package, workloads_folder=folder)
    return package


def workloads() -> ModuleType:
    """The configured workloads module, imported now."""
    package = load()
    if package.workloads_folder and package.workloads_folder not in sys.path:
        sys.path.append(package.workloads_folder)
    return importlib.import_module(package.workloads)
