"""How a compiled kernel is launched without Triton's binder: one adapter for each Triton.

The launchers of Triton 3.6 (one in C for each signature) and 3.7 (one for all) take addresses as
numbers. Every other launcher, a driver that records among them, is called as Triton calls it.
"""

from __future__ import annotations

import copy
import inspect
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import triton

from .steps import Described, Launch, Slot

# Argument lists and encoded descriptors that a launch keeps: a loop has few addresses.
MOST_ADDRESSES = 512

# Of the tensors by slot, their addresses by slot, and the stream.
Run: TypeAlias = Callable[[list[Any], list[int], int], None]


@dataclass(frozen=True)
class Ready:
    """A launch, and what of its arguments has to be a tensor."""

    run: Run
    tensors: tuple[Any, ...]


def launcher(step: Launch) -> Ready:
    """The launch by the adapter of this Triton where there is one, else as Triton does it."""
    by_number = _by_number(step)
    return Ready(_by_tensor(step), step.arguments) if by_number is None else Ready(by_number, ())


def _by_tensor(step: Launch) -> Run:
    compiled, grid, arguments = step.compiled, step.grid, step.arguments
    run, function, packed = compiled.run, compiled.function, compiled.packed_metadata

    def fill(value: Any, tensors: list[Any]) -> Any:
        if isinstance(value, Slot):
            return tensors[value.number]
        if isinstance(value, Described):
            found = copy.copy(value.descriptor)
            found.base = tensors[value.slot.number]
            return found
        if isinstance(value, tuple):
            return tuple(fill(one, tensors) for one in value)
        return value

    constant = [not _varies(one) for one in arguments]

    def launch(tensors: list[Any], addresses: list[int], stream: int) -> None:
        values = [
            one if same else fill(one, tensors)
            for one, same in zip(arguments, constant, strict=True)
        ]
        run(*grid, stream, function, packed, None, None, None, *values)

    return launch


def _varies(value: Any) -> bool:
    if isinstance(value, tuple):
        return any(_varies(one) for one in value)
    return isinstance(value, (Slot, Described))


def _by_number(step: Launch) -> Run | None:
    """None where this Triton's launcher is not one of those known here."""
    version = str(triton.__version__)
    if not version.startswith(("3.6.", "3.7.")):
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
    compiled = step.compiled
    head = (compiled.function, found.launch_cooperative_grid, found.launch_pdl)
    packed = compiled.packed_metadata
    if version.startswith("3.6."):
        first: tuple[Any, ...] = (*head, None, None, packed, None, None, None)
        return _repeated(start, step.grid, arguments, lambda values: (*first, *values))
    nothing = (None,) * 5  # of scratch memory, metadata and hooks
    first = (*head, packed, *nothing, found.arg_annotations, found.kernel_signature)
    return _repeated(start, step.grid, arguments, lambda values: (*first, values))


@dataclass(frozen=True)
class _Arguments:
    """What a launcher in C takes, with holes for what comes from slots.

    ``pointers``: where an address stands, the slot of its memory and the offset there.
    ``descriptors`` likewise, with what encodes one; ``tuples``: where one stands, its parts, and
    their pointers.
    """

    values: list[Any]
    pointers: list[tuple[int, int, int]]
    descriptors: list[tuple[int, int, int, dict[int, Any], _Encoder]]
    tuples: list[tuple[int, list[Any], list[tuple[int, int, int]]]]

    def varying(self) -> Callable[[list[int]], Any]:
        """Takes, of addresses by slot, those that the arguments follow from."""
        slots = {root for _, root, _ in self.pointers}
        slots |= {root for _, root, *_ in self.descriptors}
        slots |= {root for _, _, inner in self.tuples for _, root, _ in inner}
        return operator.itemgetter(*sorted(slots)) if slots else lambda addresses: None

    def filled(self, addresses: list[int]) -> list[Any]:
        found = self.values.copy()
        for at, root, offset in self.pointers:
            found[at] = addresses[root] + offset
        for at, root, offset, encoded, encode in self.descriptors:
            address = addresses[root] + offset
            one = encoded.get(address)
            found[at] = encode(address) if one is None else one
        for at, parts, inner in self.tuples:
            made = parts.copy()
            for i, root, offset in inner:
                made[i] = addresses[root] + offset
            found[at] = tuple(made)
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
            where = (len(values), slot.root, slot.offset)
            found.descriptors.append((*where, encoder.encoded, encoder))
            values += [None, *encoder.rest]
        elif _varies(one):
            inner = [(i, x.root, x.offset) for i, x in enumerate(one) if isinstance(x, Slot)]
            found.tuples.append((len(values), list(one), inner))
            values.append(None)
        else:
            values.append(one)
    return found


def _repeated(start: Any, grid: Any, arguments: _Arguments, whole: Callable[..., Any]) -> Run:
    """Launches by ``start`` with ``whole`` of the arguments, made once a set of addresses."""
    x, y, z = grid
    take, fill = arguments.varying(), arguments.filled
    kept: dict[Any, tuple[Any, ...]] = {}

    def launch(tensors: list[Any], addresses: list[int], stream: int) -> None:
        where = take(addresses)
        given = kept.get(where)
        if given is None:
            given = _kept(kept, where, whole(fill(addresses)))
        start(x, y, z, stream, *given)

    return launch


def _kept(kept: dict[Any, Any], where: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(kept) >= MOST_ADDRESSES:
        kept.clear()
    kept[where] = given
    return given


class _Encoder:
    """Encodes a descriptor over memory at an address, once for each address."""

    def __init__(self, described: Described, meta: Any, encode: Any) -> None:
        self.encoded: dict[int, Any] = {}
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
        if len(self.encoded) >= MOST_ADDRESSES:
            self.encoded.clear()
        stand_in = copy.copy(self)
        stand_in.base = _Address(address)
        found = self.encoded[address] = self._encode(stand_in, self._meta)[0]
        return found


@dataclass(frozen=True)
class _Address:
    """What an encoder asks of a tensor."""

    address: int

    def data_ptr(self) -> int:
        return self.address
