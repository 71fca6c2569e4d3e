"""Operators that libraries add to torch, where what they run is Python and may launch kernels.

``torch.library.custom_op`` and ``triton_op`` keep their functions; those given to
``torch.library.Library.impl`` disappear in torch's dispatcher, and are noted while a call is
recorded (the measured package is imported there).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS

# What a GPU would run, the first there is.
_KEYS = ("CUDA", "CompositeExplicitAutograd")
_given: dict[tuple[str, str], Callable[..., Any]] = {}


def python_kernel(func: Any) -> Callable[..., Any] | None:
    """The Python function that runs operator ``func`` on a GPU, ``None`` where there is none."""
    name = func._schema.name
    definition = OPDEFS.get(name)
    if definition is not None:
        functions: dict[str | None, Callable[..., Any]] = definition._backend_fns
        return functions.get("cuda") or functions.get(None)
    full = f"{name}.{func._schema.overload_name}".rstrip(".")
    return next((_given[full, key] for key in _KEYS if _in_force(full, key)), None)


def _in_force(full: str, key: str) -> bool:
    """Whether the library that gave a function is still there: some replace torch's own operators
    in a ``with`` block only."""
    return (full, key) in _given and f"{full.replace('::', '/')}/{key}" in torch.library._impls


@contextmanager
def noted() -> Iterator[None]:
    """Inside, functions given to ``Library.impl`` are kept for :func:`python_kernel`."""
    library: Any = torch.library.Library
    original = library.impl

    def impl(self: Any, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any) -> Any:
        done = original(self, op_name, fn, dispatch_key, **options)
        name = op_name if isinstance(op_name, str) else str(op_name._schema.name)
        full = name if "::" in name else f"{self.ns}::{name}"
        if not options.get("with_keyset"):
            _given[full.removesuffix(".default"), dispatch_key or self.dispatch_key] = fn
        return done

    library.impl = impl
    try:
        yield
    finally:
        library.impl = original
