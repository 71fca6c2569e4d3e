"""How a compiled kernel is launched without Triton's binder: one adapter for each Triton.

The launchers of Triton 3.6 (one in C for each signature) and 3.7 (one for all) take addresses as
numbers. Every other launcher, a driver that records among them, is called as Triton calls it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeAlias

import triton

from .source import Names
from .steps import Described, Launch, Slot, slots_in, varies

# Of Triton, whose launchers are known here.
VERSIONS = ("3.6.", "3.7.")
# Argument lists, and encoded descriptors, of a launch that are surely kept: a step of training has
# so many sets of addresses where each layer has its own.
MOST_ADDRESSES = 1024

# Writes a launch: a line that knows tensors and addresses by slot, and the stream.
Line: TypeAlias = Callable[[Names], str]
# Where a value stands that follows from the addresses of slots, and how.
Hole: TypeAlias = tuple[int, Callable[[dict[int, int]], Any]]


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
    flat = _flat(step, metas, nvidia.make_tensordesc_arg)
    compiled, grid = step.compiled, step.grid
    head = (compiled.function, found.launch_cooperative_grid, found.launch_pdl)
    packed = compiled.packed_metadata
    if version.startswith("3.6."):
        first: tuple[Any, ...] = (*head, None, None, packed, None, None, None)
        return _repeated(start, step, flat, lambda stream, values: (*grid, stream, *first, *values))
    nothing = (None,) * 5  # of scratch memory, metadata and hooks
    first = (*head, packed, *nothing, found.arg_annotations, found.kernel_signature)
    return _repeated(start, step, flat, lambda stream, values: (*grid, stream, *first, values))


def _addressed(value: Any, addresses: dict[int, int]) -> Any:
    if isinstance(value, Slot):
        return addresses[value.root] + value.offset
    if isinstance(value, tuple):  # a launcher asks for no names
        return tuple([_addressed(one, addresses) for one in value])
    return value


class _Kept(dict[Any, Any]):
    """The latest values by key, made where they are missing: at least ``MOST_ADDRESSES``, at most
    twice as many."""

    __slots__ = ("_before", "_make")

    def __init__(self, make: Callable[[Any], Any]) -> None:
        super().__init__()
        self._before: dict[Any, Any] = {}
        self._make = make

    def __missing__(self, key: Any) -> Any:
        found = self._before.get(key)
        if found is None:
            found = self._make(key)
        if len(self) >= MOST_ADDRESSES:
            self._before = dict(self)
            self.clear()
        self[key] = found
        return found


def _flat(step: Launch, metas: Any, encode: Any) -> tuple[list[Any], list[Hole]]:
    """What a launcher in C takes, with holes for what comes from slots. Descriptors stand there
    with their shapes and strides."""
    values: list[Any] = []
    holes: list[Hole] = []
    remaining = iter(metas or ())
    for one in step.arguments:
        if isinstance(one, Described):
            encoder = _Encoder(one, next(remaining, None), encode)
            holes.append((len(values), encoder))
            values += [None, *encoder.rest]
        elif varies(one):
            holes.append((len(values), functools.partial(_addressed, one)))
            values.append(None)
        else:
            values.append(one)
    return values, holes


def _repeated(start: Any, step: Launch, flat: Any, whole: Callable[..., Any]) -> Line:
    """Launches by ``start`` with ``whole`` of a stream and the arguments, made once for each stream
    and set of addresses."""
    values, holes = flat
    roots = sorted({one.root for one in slots_in(step.arguments)})

    def make(key: tuple[int, ...]) -> tuple[Any, ...]:
        stream, *addresses = key
        found, known = values.copy(), dict(zip(roots, addresses, strict=True))
        for at, filled in holes:
            found[at] = filled(known)
        return whole(stream, found)

    def line(names: Names) -> str:
        key = ", ".join(("stream", *(f"a{one}" for one in roots)))
        return f"{names.of(start)}(*{names.of(_Kept(make))}[({key},)])"

    return line


class _Encoder:
    """Encodes a descriptor over memory at an address, once for each address."""

    def __init__(self, described: Described, meta: Any, encode: Any) -> None:
        self._encoded = _Kept(self._over)
        descriptor = described.descriptor
        self._slot, self._meta, self._encode = described.slot, meta, encode
        self._sizes = {
            "shape": list(descriptor.shape),
            "strides": list(descriptor.strides),
            "padding": descriptor.padding,
            "round_f32_to_tf32": getattr(descriptor, "round_f32_to_tf32", False),
        }
        first = SimpleNamespace(base=_Address(described.address), **self._sizes)
        self.rest = encode(first, meta)[1:]

    def __call__(self, addresses: dict[int, int]) -> Any:
        address = _addressed(self._slot, addresses)
        if self._meta is None:  # lowered to an address and numbers
            return address
        return self._encoded[address]

    def _over(self, address: int) -> Any:
        # Not a copy of this one, which takes ten times as long.
        stand_in = SimpleNamespace(base=_Address(address), **self._sizes)
        return self._encode(stand_in, self._meta)[0]


@dataclass(frozen=True)
class _Address:
    """What an encoder asks of a tensor."""

    address: int

    def data_ptr(self) -> int:
        return self.address
