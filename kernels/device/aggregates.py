"""Values that kernels hand on together: Triton's aggregates, whose fields are written once."""

from __future__ import annotations

import linecache
from typing import Any, Literal, dataclass_transform

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.core import _aggregate


def computed(expression: str, *, init: Literal[False] = False) -> Any:
    """A field that the constructor does not take: an expression of those that it does."""
    return expression


@dataclass_transform(field_specifiers=(computed,))
def aggregate(cls: type) -> Any:
    """A class of Triton's, whose constructor takes its fields in their order unless it has one.

    Triton knows a kernel by the source of what it uses. So the constructor is source, too, and
    ``inspect`` finds its lines.
    """
    if "__init__" not in vars(cls):
        cls.__init__ = gluon.constexpr_function(_constructor(cls))  # type: ignore[misc]
    return _aggregate(cls)


def _constructor(cls: type) -> Any:
    kinds: dict[str, Any] = cls.__annotations__
    taken = [name for name in kinds if name not in vars(cls)]
    lines = [f"def __init__(self, {', '.join(taken)}):\n"]
    for name, kind in kinds.items():
        value = getattr(cls, name, name)
        value = f"gl.constexpr({value})" if kind is gl.constexpr else value
        lines.append(f"    self.{name} = {value}\n")
    source, file = "".join(lines), f"<fields of {cls.__module__}.{cls.__qualname__}>"
    linecache.cache[file] = (len(source), None, lines, file)
    space: dict[str, Any] = {"gl": gl, "__name__": cls.__module__}
    exec(compile(source, file, "exec"), space)
    return space["__init__"]
