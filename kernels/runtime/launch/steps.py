"""What a call consists of, without any tensor of it.

A tensor is known by its slot: the arguments come first, then whatever operations of torch make. An
address in a launch is a slot's own, or so many bytes behind that of the slot that it views.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch


class Unrepeatable(Exception):  # noqa: N818  (no error: the call runs as written)
    """A call that a plan cannot repeat."""


@dataclass(frozen=True)
class Slot:
    """The tensor of this number; ``root`` owns its memory, which begins ``offset`` bytes before."""

    number: int
    root: int
    offset: int


@dataclass(frozen=True)
class Operation:
    """An operation of torch: its arguments, with slots, and the slots of its results."""

    run: Callable[..., Any]
    args: Any
    kwargs: Any
    results: tuple[int | None, ...]
    tuple_of: bool

    @property
    def uses(self) -> Iterable[Slot]:
        """The slots it asks for."""
        return slots_in((self.args, self.kwargs))

    @property
    def makes(self) -> list[int]:
        """The numbers of the slots it adds."""
        return [one for one in self.results if one is not None]


@dataclass(frozen=True)
class View(Operation):
    """Another look at the memory of a slot."""


@dataclass(frozen=True)
class Applied(Operation):
    """A function of autograd, and its node where that can be replayed."""

    node: Any


@dataclass(frozen=True)
class Allocation:
    """Memory that nobody has written."""

    slot: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    nbytes: int

    uses = ()

    @property
    def makes(self) -> list[int]:
        return [self.slot]


@dataclass(frozen=True)
class Launch:
    """A compiled kernel, its grid, and all arguments in the order of its signature."""

    kernel: Any
    compiled: Any
    grid: tuple[int, int, int]
    arguments: tuple[Any, ...]

    makes = ()

    @property
    def uses(self) -> Iterable[Slot]:
        return slots_in(self.arguments)


@dataclass(frozen=True)
class Described:
    """A descriptor of the copy engine over the tensor of a slot; without that tensor itself, which
    a plan would keep alive. ``address`` is where that lay."""

    descriptor: Any
    slot: Slot
    address: int


Step = Operation | Allocation | Launch


def slots_in(value: Any) -> Iterable[Slot]:
    """The slots of a template."""
    if isinstance(value, Slot):
        yield value
    elif isinstance(value, Described):
        yield value.slot
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from slots_in(one)


def varies(value: Any) -> bool:
    """Whether a template has slots."""
    return any(True for _ in slots_in(value))


def like(value: Any, parts: Iterable[Any]) -> Any:
    """``parts`` in a tuple or list of the kind of ``value``, with names where that has names."""
    return value._make(parts) if hasattr(value, "_fields") else type(value)(parts)
