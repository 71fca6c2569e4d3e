"""A repeated call as one function that is written for it, a line a step.

A list of steps would cost a call for each of them, and put every tensor in a list and take it out.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable
from types import CodeType, FunctionType
from typing import Any

from .steps import Described, Slot, like, varies

# Of functions that differ in nothing but values, as most forms do.
MOST_TEXTS = 1024


class Names:
    """The values that the lines of a function name."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def of(self, value: Any) -> str:
        """How a line names ``value``."""
        if value is None or isinstance(value, bool):
            return repr(value)
        name = f"c{len(self.values)}"
        self.values[name] = value
        return name

    def filled(self, value: Any) -> str:
        """A template, with tensors in place of slots."""
        if isinstance(value, Slot):
            return f"t{value.number}"
        if isinstance(value, Described):
            over = functools.partial(_over, value.descriptor)
            return f"{self.of(over)}({self.filled(value.slot)})"
        if isinstance(value, (tuple, list)) and varies(value):
            parts = together(map(self.filled, value))
            kind = functools.partial(like, value)
            return parts if type(value) is tuple else f"{self.of(kind)}({parts})"
        return self.of(value)

    def address(self, slot: Slot) -> str:
        """Where ``slot`` lies."""
        return f"a{slot.root} + {self.of(slot.offset)}" if slot.offset else f"a{slot.root}"


def _over(descriptor: Any, base: Any) -> Any:
    """The descriptor of another tensor, alike."""
    found = copy.copy(descriptor)
    found.base = base
    return found


def together(parts: Iterable[str]) -> str:
    """A tuple of ``parts``."""
    return f"({''.join(f'{one}, ' for one in parts)})"


def function(parameters: str, lines: Iterable[str], names: Names) -> Callable[..., Any]:
    """The function that runs ``lines``."""
    text = "\n    ".join((f"def call({parameters}):", *lines))
    # A copy, since the interpreter keeps in a code what it learned of one function's values.
    return FunctionType(_code(text).replace(), names.values)


@functools.lru_cache(MOST_TEXTS)
def _code(text: str) -> CodeType:
    module = compile(text, "<repeated call>", "exec")
    return next(one for one in module.co_consts if isinstance(one, CodeType))
