"""Kernels written for one architecture, beside the portable one that serves where they cannot."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import triton
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources, PTXASError

from . import targets
from .gluon_names import keep_names
from .launch import forget

COMPILE_ERRORS = (CompilationError, OutOfResources, PTXASError)
# A pass of the compiler that fails, and a translation, are no errors of Triton's own class.
FAILED_PASSES = ("PassManager::run failed", "failed to translate module to LLVM IR")

# On cards 3.6 and 3.7; the others by the compiler and the simulator.
TESTED = ("3.6.", "3.7.", "3.8.", "3.9.")

_given_up: set[str] = set()


def specialised(name: str, problem: Any, *given: Any) -> bool:
    """Whether kernels for this architecture served a problem.

    Args:
        name: The module that holds them, below this package: ``supported`` says whether they take
            the problem, and ``launch`` launches them.
        problem: The problem to compute.
        given: Whatever else ``launch`` takes.

    Returns:
        False where the current target has no such kernels, they do not take the problem, or they
        do not compile. The portable ones serve then.
    """
    module = on_this_target(name)
    if module is None or not module.supported(problem):
        return False
    return serves(name, module.launch, problem, *given)


def on_this_target(name: str) -> ModuleType | None:
    """The module ``name`` below this package, or None where the current target cannot run it."""
    return load(name) if targets.current().has_wgmma else None


def serves(name: str, launch: Callable[..., None], *args: Any, **kwargs: Any) -> bool:
    """Whether ``launch``, of the module ``name``, served: where its kernel does not compile, says
    so once and leaves this problem and all later ones to the portable kernel."""
    try:
        launch(*args, **kwargs)
    except COMPILE_ERRORS as error:
        give_up(name, error)
    except RuntimeError as error:
        if not any(phrase in str(error) for phrase in FAILED_PASSES):
            raise
        give_up(name, error)
    else:
        return True
    return False


def load(name: str) -> ModuleType | None:
    """The module ``name`` below this package, or None where this Triton cannot run it."""
    if name in _given_up:
        return None
    if not str(triton.__version__).startswith(TESTED):
        # Asked before any import: where Gluon has moved, that fails in ways of its own. It is one
        # reason for all of them, so the first tells it.
        if not _given_up:
            got = f"Gluon kernels are tested on Triton 3.6 to 3.9, got {triton.__version__}"
            _tell("kernels written for Hopper", got, stacklevel=4)
        _given_up.add(name)
        return None
    try:
        keep_names()
        return importlib.import_module(f"{__name__.partition('.')[0]}.{name}")
    except ImportError as error:
        give_up(name, error)
        return None


def give_up(name: str, error: Exception) -> None:
    """From now on the portable kernel serves; says so once."""
    _given_up.add(name)
    forget()
    reason = str(error).strip().splitlines()
    last = reason[-1] if reason else "no message"
    _tell(f"kernels.{name}", f"{type(error).__name__}: {last}")


def _tell(what: str, why: str, stacklevel: int = 5) -> None:
    warnings.warn(
        f"{what}: the portable kernel serves, which is correct but slower; {why}",
        RuntimeWarning,
        stacklevel=stacklevel,
    )
