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

from .steps import Described, Launch, Slot, like, slots_in

# Of Triton, whose launchers are known here.
VERSIONS = ("3.6.", "3.7.")
# Argument lists, and encoded descriptors, of a launch that are surely kept: a step of training has
# so many sets of addresses where each layer has its own.
MOST_ADDRESSES = 1024

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
            return like(value, [fill(one, tensors) for one in value])
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


def _describes(value: Any) -> bool:
    if isinstance(value, tuple):
        return any(_describes(one) for one in value)
    return isinstance(value, Described)


def _by_number(step: Launch) -> Run | None:
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
    ``descriptors`` likewise, with what encodes one; ``tuples``: where one stands, and that with
    slots, which may be tuples of tuples.
    """

    values: list[Any]
    pointers: list[tuple[int, int, int]]
    descriptors: list[tuple[int, int, int, _Encoder]]
    tuples: list[tuple[int, tuple[Any, ...]]]

    def varying(self) -> Callable[[list[int]], Any]:
        """Takes, of addresses by slot, those that the arguments follow from."""
        slots = {root for _, root, _ in self.pointers}
        slots |= {root for _, root, *_ in self.descriptors}
        slots |= {one.root for _, whole in self.tuples for one in slots_in(whole)}
        return operator.itemgetter(*sorted(slots)) if slots else lambda addresses: None

    def filled(self, addresses: list[int]) -> list[Any]:
        found = self.values.copy()
        for at, root, offset in self.pointers:
            found[at] = addresses[root] + offset
        for at, root, offset, encode in self.descriptors:
            found[at] = encode(addresses[root] + offset)
        for at, whole in self.tuples:
            found[at] = _addressed(whole, addresses)
        return found


def _addressed(value: Any, addresses: list[int]) -> Any:
    if isinstance(value, Slot):
        return addresses[value.root] + value.offset
    if isinstance(value, tuple):  # a launcher asks for no names
        return tuple([_addressed(one, addresses) for one in value])
    return value


class _Kept(dict[Any, Any]):
    """The latest values by key: at least ``MOST_ADDRESSES``, at most twice as many."""

    __slots__ = ("_before",)

    def __init__(self) -> None:
        super().__init__()
        self._before: dict[Any, Any] = {}

    def older(self, key: Any) -> Any:
        """What was kept for a key that is not among the newer half."""
        found = self._before.get(key)
        return None if found is None else self.keep(key, found)

    def keep(self, key: Any, value: Any) -> Any:
        if len(self) >= MOST_ADDRESSES:
            self._before = dict(self)
            self.clear()
        self[key] = value
        return value


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
        elif _varies(one):
            found.tuples.append((len(values), one))
            values.append(None)
        else:
            values.append(one)
    return found


def _repeated(start: Any, grid: Any, arguments: _Arguments, whole: Callable[..., Any]) -> Run:
    """Launches by ``start`` with ``whole`` of the arguments, made once a set of addresses."""
    x, y, z = grid
    take, fill = arguments.varying(), arguments.filled
    kept = _Kept()

    def launch(tensors: list[Any], addresses: list[int], stream: int) -> None:
        where = take(addresses)
        given = kept.get(where)
        if given is None:
            given = kept.older(where) or kept.keep(where, whole(fill(addresses)))
        start(x, y, z, stream, *given)

    return launch


class _Encoder:
    """Encodes a descriptor over memory at an address, once for each address."""

    def __init__(self, described: Described, meta: Any, encode: Any) -> None:
        self._encoded = _Kept()
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
        found = self._encoded.get(address)
        found = self._encoded.older(address) if found is None else found
        if found is None:
            stand_in = copy.copy(self)
            stand_in.base = _Address(address)
            found = self._encoded.keep(address, self._encode(stand_in, self._meta)[0])
        return found


@dataclass(frozen=True)
class _Address:
    """What an encoder asks of a tensor."""

    address: int

    def data_ptr(self) -> int:
        return self.address
