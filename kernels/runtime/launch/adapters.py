"""How a compiled kernel is launched without Triton's binder: one adapter for each Triton.

The launchers of Triton 3.6 (one in C for each signature) and 3.7 (one for all) take addresses as
numbers. Every other launcher, a driver that records among them, is called as Triton calls it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from types import SimpleNamespace
from typing import Any, TypeAlias

import triton

from .source import Names, together
from .steps import Described, Launch, Slot, varies

# Of Triton, whose launchers are known here.
VERSIONS = ("3.6.", "3.7.")
# Encoded descriptors of an argument that are surely kept: a step of training has so many addresses
# where each layer has its own, and other calls take turns with memory.
MOST_ADDRESSES = 1024

# Writes a launch: a line that knows tensors and addresses by slot, and the stream.
Line: TypeAlias = Callable[[Names], str]


@dataclass(frozen=True)
class _Written:
    """An argument that follows from addresses, or the stream: as a line writes it."""

    text: Line


def launcher(step: Launch) -> tuple[Line, tuple[Any, ...]]:
    """The launch by the adapter of this Triton where there is one, else as Triton does it; and what
    of its arguments has to be a tensor."""
    line = _by_number(step)
    return (_by_tensor(step), step.arguments) if line is None else (line, ())


def _by_tensor(step: Launch) -> Line:
    compiled = step.compiled
    head = (compiled.function, compiled.packed_metadata, None, None, None)

    def line(names: Names) -> str:
        values = [*map(names.of, head), *map(names.filled, step.arguments)]
        grid = map(names.of, step.grid)
        return f"{names.of(compiled.run)}({', '.join((*grid, 'stream', *values))})"

    return line


def _describes(value: Any) -> bool:
    if isinstance(value, tuple):
        return any(_describes(one) for one in value)
    return isinstance(value, Described)


def _by_number(step: Launch) -> Line | None:
    """None where this Triton's launcher is not one of those known here."""
    version = str(triton.__version__)
    if not version.startswith(VERSIONS):
        return None
    if any(_describes(one) for one in step.arguments if isinstance(one, tuple)):
        return None
    from triton.backends.nvidia import driver as nvidia

    found = step.compiled.run
    if type(found) is not nvidia.CudaLauncher:
        return None
    if found.global_scratch_size or found.profile_scratch_size:
        return None
    start, metas = found.launch, None
    if inspect.isfunction(start):  # wrapped where arguments are descriptors
        inner = inspect.getclosurevars(start).nonlocals
        if not {"launcher", "tensordesc_meta"} <= inner.keys():
            return None
        start, metas = inner["launcher"], inner["tensordesc_meta"]
    compiled = step.compiled
    values = _flat(step, metas, nvidia.make_tensordesc_arg)
    stream = _Written(lambda names: "stream")
    head = (compiled.function, found.launch_cooperative_grid, found.launch_pdl)
    first: tuple[Any, ...] = (*step.grid, stream, *head)
    nothing, packed = (None,) * 5, compiled.packed_metadata  # of scratch memory, metadata and hooks
    if version.startswith("3.6."):
        given = (*first, None, None, packed, None, None, None, *values)
        return lambda names: f"{names.of(start)}{_together(given, names)}"
    kinds = (found.arg_annotations, found.kernel_signature)
    whole = _Written(lambda names: _together(values, names))  # in a tuple of their own
    given = (*first, packed, *nothing, *kinds, whole)
    return lambda names: f"{names.of(start)}{_together(given, names)}"


def _together(arguments: Iterable[Any], names: Names) -> str:
    """A tuple of ``arguments``. Those that are the same in every call stand in tuples in it: a name
    for each would take longer."""
    parts: list[str] = []
    for written, values in groupby(arguments, lambda one: isinstance(one, _Written)):
        if written:
            parts += [one.text(names) for one in values]
        else:
            parts.append(f"*{names.of(tuple(values))}")
    return together(parts)


def _flat(step: Launch, metas: Any, encode: Any) -> list[Any]:
    """What a launcher in C takes. Descriptors stand there with their shapes and strides."""
    values: list[Any] = []
    remaining = iter(metas or ())
    for one in step.arguments:
        if isinstance(one, Described):
            values += _described(one, next(remaining, None), encode)
        elif varies(one):
            values.append(_Written(partial(_addressed, one)))
        else:
            values.append(one)
    return values


def _addressed(value: Any, names: Names) -> str:
    if isinstance(value, Slot):
        return names.address(value)
    if isinstance(value, tuple):  # a launcher asks for no names
        return together([_addressed(one, names) for one in value])
    return names.of(value)


def _described(described: Described, meta: Any, encode: Any) -> list[Any]:
    """A descriptor, encoded once for each address, and what follows it."""
    descriptor, slot = described.descriptor, described.slot
    sizes = {
        "shape": list(descriptor.shape),
        "strides": list(descriptor.strides),
        "padding": descriptor.padding,
        "round_f32_to_tf32": getattr(descriptor, "round_f32_to_tf32", False),
    }

    def over(address: int) -> list[Any]:
        # No copy of the descriptor, which takes ten times as long.
        found: list[Any] = encode(SimpleNamespace(base=_Address(address), **sizes), meta)
        return found

    rest = over(described.address)[1:]
    if meta is None:  # lowered to an address and numbers
        return [_Written(lambda names: names.address(slot)), *rest]
    kept = _Kept(lambda address: over(address)[0])
    return [_Written(lambda names: f"{names.of(kept)}[{names.address(slot)}]"), *rest]


class _Kept(dict[int, Any]):
    """The latest values by address, made where they are missing: at least ``MOST_ADDRESSES``, at
    most twice as many."""

    __slots__ = ("_before", "_make")

    def __init__(self, make: Callable[[int], Any]) -> None:
        super().__init__()
        self._before: dict[int, Any] = {}
        self._make = make

    def __missing__(self, address: int) -> Any:
        found = self._before.get(address)
        if found is None:
            found = self._make(address)
        if len(self) >= MOST_ADDRESSES:
            self._before = dict(self)
            self.clear()
        self[address] = found
        return found


@dataclass(frozen=True)
class _Address:
    """What an encoder asks of a tensor."""

    address: int

    def data_ptr(self) -> int:
        return self.address
