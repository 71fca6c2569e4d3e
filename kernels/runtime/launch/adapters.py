"""How a compiled kernel is launched without Triton's binder: one adapter for each Triton.

The launchers of Triton 3.6 (one in C for each signature) and 3.7 (one for all) take addresses as
numbers. Every other launcher, a driver that records among them, is called as Triton calls it.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Ready:
    """A launch, and what of its arguments has to be a tensor."""

    line: Line
    tensors: tuple[Any, ...]


def launcher(step: Launch) -> Ready:
    """The launch by the adapter of this Triton where there is one, else as Triton does it."""
    line = _by_number(step)
    return Ready(_by_tensor(step), step.arguments) if line is None else Ready(line, ())


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
    arguments = _flat(step, metas, nvidia.make_tensordesc_arg)
    compiled, grid = step.compiled, step.grid
    head = (compiled.function, found.launch_cooperative_grid, found.launch_pdl)
    packed = compiled.packed_metadata
    if version.startswith("3.6."):
        first: tuple[Any, ...] = (*head, None, None, packed, None, None, None)
        return _repeated(start, arguments, lambda stream, values: (*grid, stream, *first, *values))
    nothing = (None,) * 5  # of scratch memory, metadata and hooks
    first = (*head, packed, *nothing, found.arg_annotations, found.kernel_signature)
    return _repeated(start, arguments, lambda stream, values: (*grid, stream, *first, values))


@dataclass(frozen=True)
class _Arguments:
    """What a launcher in C takes, with holes for what comes from slots.

    ``pointers``: where an address stands, the slot of its memory and the offset there.
    ``descriptors`` likewise, with what encodes one; ``tuples``: where one stands, and that with
    slots, which may be tuples of tuples.
    """

    values: list[Any]
    pointers: list[tuple[int, int, int]]
    descriptors: list[tuple[int, int, int, _Encoder]]
    tuples: list[tuple[int, tuple[Any, ...]]]

    def roots(self) -> list[int]:
        """The slots whose addresses the arguments follow from."""
        found = {root for _, root, _ in self.pointers}
        found |= {root for _, root, *_ in self.descriptors}
        return sorted(found | {one.root for _, whole in self.tuples for one in slots_in(whole)})

    def filled(self, addresses: dict[int, int]) -> list[Any]:
        found = self.values.copy()
        for at, root, offset in self.pointers:
            found[at] = addresses[root] + offset
        for at, root, offset, encode in self.descriptors:
            found[at] = encode(addresses[root] + offset)
        for at, whole in self.tuples:
            found[at] = _addressed(whole, addresses)
        return found


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


def _flat(step: Launch, metas: Any, encode: Any) -> _Arguments:
    """Descriptors stand in a launcher's arguments with their shapes and strides."""
    found = _Arguments([], [], [], [])
    values, remaining = found.values, iter(metas or ())
    for one in step.arguments:
        if isinstance(one, Slot):
            found.pointers.append((len(values), one.root, one.offset))
            values.append(None)
        elif isinstance(one, Described):
            encoder, slot = _Encoder(one, next(remaining, None), encode), one.slot
            found.descriptors.append((len(values), slot.root, slot.offset, encoder))
            values += [None, *encoder.rest]
        elif varies(one):
            found.tuples.append((len(values), one))
            values.append(None)
        else:
            values.append(one)
    return found


def _repeated(start: Any, arguments: _Arguments, whole: Callable[..., Any]) -> Line:
    """Launches by ``start`` with ``whole`` of a stream and the arguments, made once for each stream
    and set of addresses."""
    roots = arguments.roots()

    def make(key: tuple[int, ...]) -> tuple[Any, ...]:
        stream, *addresses = key
        return whole(stream, arguments.filled(dict(zip(roots, addresses, strict=True))))

    def line(names: Names) -> str:
        key = ", ".join(("stream", *(f"a{one}" for one in roots)))
        return f"{names.of(start)}(*{names.of(_Kept(make))}[({key},)])"

    return line


class _Encoder:
    """Encodes a descriptor over memory at an address, once for each address."""

    def __init__(self, described: Described, meta: Any, encode: Any) -> None:
        self._encoded = _Kept(self._over)
        descriptor = described.descriptor
        self._meta, self._encode = meta, encode
        self.shape, self.strides = list(descriptor.shape), list(descriptor.strides)
        self.padding = descriptor.padding
        self.round_f32_to_tf32 = getattr(descriptor, "round_f32_to_tf32", False)
        self.base = _Address(described.address)
        self.rest = encode(self, meta)[1:]

    def __call__(self, address: int) -> Any:
        if self._meta is None:  # lowered to an address and numbers
            return address
        return self._encoded[address]

    def _over(self, address: int) -> Any:
        stand_in = copy.copy(self)
        stand_in.base = _Address(address)
        return self._encode(stand_in, self._meta)[0]


@dataclass(frozen=True)
class _Address:
    """What an encoder asks of a tensor."""

    address: int

    def data_ptr(self) -> int:
        return self.address
