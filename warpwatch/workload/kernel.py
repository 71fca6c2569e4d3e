"""Finds the kernel that a workload measures in a commit's package."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any


def find_kernel(package: Any, kernel: str) -> Any:
    """Look a kernel up below the measured package, in whichever of its modules.

    Args:
        package: The imported package.
        kernel: A name below it, such as ``matmul`` or ``ops.norm:rms_norm``; empty names nothing.

    Returns:
        What the name stands for, the package for an empty one, ``None`` where a part is missing.
        Modules on the way are imported.

    Example:
        >>> import json
        >>> find_kernel(json, "decoder:JSONDecoder").__name__
        'JSONDecoder'
    """
    found = package
    for part in filter(None, kernel.replace(":", ".").split(".")):
        if not hasattr(found, part) and isinstance(found, ModuleType):
            try:
                importlib.import_module(f"{found.__name__}.{part}")
            except ModuleNotFoundError:
                return None
        if not hasattr(found, part):
            return None
        found = getattr(found, part)
    return found
