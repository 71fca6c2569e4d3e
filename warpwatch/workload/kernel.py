"""Finds the kernel that a workload measures in a commit's package."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from types import ModuleType
from typing import Any


def find_kernel(package: Any, kernel: str) -> Any:
    """Look a kernel up below the measured package, in whichever of its modules.

    Args:
        package: The imported package.
        kernel: A name below it, such as ``matmul`` or ``ops.norm:rms_norm``; empty names nothing.

    Returns:
        What the name stands for, the package for an empty one, ``None`` where a part is missing.
        Modules on the way are imported. Before a colon only modules are looked for: many a package
        offers a function under the name of its module.

    Raises:
        ImportError: A module on the way is there, and imports one that is not.

    Example:
        >>> import json
        >>> find_kernel(json, "decoder:JSONDecoder").__name__
        'JSONDecoder'
    """
    modules, _, names = kernel.rpartition(":")
    found = _module(f"{package.__name__}.{modules}") if modules else package
    for part in filter(None, names.split(".")):
        if not hasattr(found, part) and isinstance(found, ModuleType):
            _module(f"{found.__name__}.{part}")
        if not hasattr(found, part):
            return None
        found = getattr(found, part)
    return found


def absent(package: Any, kernel: str) -> str:
    """Say that a package has no such kernel.

    Args:
        package: The imported package.
        kernel: A name that :func:`find_kernel` does not find below it.

    Returns:
        One line, with the names that are nearest.

    Example:
        >>> import json
        >>> absent(json, "decoder:JSONDecodr")
        'json has no decoder:JSONDecodr; did you mean JSONDecoder or JSONDecodeError?'
        >>> absent(json, "scaner:make_scanner")
        'json has no scaner:make_scanner; did you mean scanner?'
    """
    near = _near(package, *kernel.rpartition(":")[::2])
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"{package.__name__} has no {kernel}{hint}"


def _near(place: Any, modules: str, names: str) -> list[str]:
    """The names that are nearest to the first part that is missing."""
    for part in filter(None, modules.split(".")):
        found = _module(f"{place.__name__}.{part}")
        if found is None:
            return difflib.get_close_matches(part, _modules_in(place), n=2)
        place = found
    for part in names.split("."):
        found = find_kernel(place, part) if isinstance(place, ModuleType) else None
        found = getattr(place, part, None) if found is None else found
        if found is None:
            return difflib.get_close_matches(part, {*dir(place), *_modules_in(place)}, n=2)
        place = found
    return []


def _modules_in(place: Any) -> list[str]:
    """The modules of a package, imported or not."""
    return [one.name for one in pkgutil.iter_modules(getattr(place, "__path__", ()))]


def _module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if f"{name}.".startswith(f"{error.name}."):
            return None
        raise
