"""Where the code of a call comes from: the files of its kernels, and what those import."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.util import resolve_name
from pathlib import Path
from types import ModuleType
from typing import Any

from warpwatch.instruments.compiled.formats.recording import Launch


def of(launches: Iterable[Launch], entry: Any, package: str, folder: str) -> tuple[list[str], ...]:
    """Find the files of the measured package that a call is made of.

    Args:
        launches: What the call launched.
        entry: The function that it began with, or ``None``.
        package: The import name of the measured package.
        folder: Where that lies in its repository.

    Returns:
        The files of the kernels and of the function, then the files that these import, directly or
        by one another; each as a path in the repository.
    """
    top = sys.modules.get(package)
    if top is None:
        return [], []
    if hasattr(top, "__path__"):
        # A namespace package may name one folder more than once.
        roots = list(dict.fromkeys(Path(one).resolve() for one in top.__path__))
    elif getattr(top, "__file__", None):  # a module of its own
        roots, folder = [Path(str(top.__file__)).resolve().parent], ""
    else:
        return [], []
    modules = {
        Path(file).resolve(): one
        for name, one in list(sys.modules.items())
        if f"{name}.".startswith(f"{package}.") and (file := getattr(one, "__file__", None))
    }
    named = {Path(one.file).resolve() for one in launches if one.file} | set(_file_of(entry))
    own = {file for file in named if file in modules}
    reached, waiting = set(own), list(own)
    while waiting:
        for file in _imported(modules[waiting.pop()], package):
            if file in modules and file not in reached:
                reached.add(file)
                waiting.append(file)

    def written(files: Iterable[Path]) -> list[str]:
        return sorted(
            f"{folder}/{file.relative_to(root).as_posix()}".lstrip("/")
            for file in files
            for root in roots
            if file.is_relative_to(root)
        )

    return written(own), written(reached - own)


def _file_of(entry: Any) -> Iterator[Path]:
    try:
        yield Path(inspect.getfile(inspect.unwrap(entry))).resolve()
    except (TypeError, ValueError):
        return  # nothing, or code that has no file


@cache
def _imported(module: ModuleType, package: str) -> tuple[Path, ...]:
    """The files of the package in which the names that a module imports are defined. What an
    ``__init__.py`` hands on counts as its own module's, else one name would reach everything."""
    found: list[Path] = []
    try:
        tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return ()  # an extension in machine code, or another encoding
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found += _places(alias.name, "", package)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            within = module.__spec__.parent if module.__spec__ else module.__package__
            try:
                name = resolve_name(base, within or "")
            except ImportError:
                continue
            for alias in node.names:
                found += _places(name, alias.name, package)
    return tuple(dict.fromkeys(found))


def _places(module: str, name: str, package: str) -> Iterator[Path]:
    if not f"{module}.".startswith(f"{package}."):
        return
    inner = sys.modules.get(f"{module}.{name}") if name else None
    outer = sys.modules.get(module)
    value = getattr(outer, name, None) if name else None
    defined = sys.modules.get(str(getattr(value, "__module__", "")))
    for one in (inner, defined, outer):
        file = getattr(one, "__file__", None)
        if file and f"{one.__name__}.".startswith(f"{package}."):  # type: ignore[union-attr]
            yield Path(file).resolve()
            return
