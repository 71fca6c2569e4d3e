"""Kernels written for one architecture, beside the portable one that serves where they cannot."""

from __future__ import annotations

import importlib
import warnings
from types import ModuleType

from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources, PTXASError

COMPILE_ERRORS = (CompilationError, OutOfResources, PTXASError)

_given_up: set[str] = set()


def load(name: str) -> ModuleType | None:
    """The module ``name`` below this package, or None where this Triton cannot run it."""
    if name in _given_up:
        return None
    try:
        return importlib.import_module(f".{name}", __package__)
    except ImportError as error:
        give_up(name, error)
        return None


def give_up(name: str, error: Exception) -> None:
    """From now on the portable kernel serves; says so once."""
    _given_up.add(name)
    reason = str(error).strip().splitlines()
    warnings.warn(
        f"kernels.{name}: the portable kernel serves, which is correct but slower; "
        f"{type(error).__name__}: {reason[-1] if reason else 'no message'}",
        RuntimeWarning,
        stacklevel=3,
    )
