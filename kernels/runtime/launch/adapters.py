"""How a compiled kernel is launched without Triton's binder: one adapter for each Triton.

The launchers of Triton 3.6 (one in C for each signature) and 3.7 (one for all) take addresses as
numbers. Every other launcher, a driver that records among them, is called as Triton calls it.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import triton

from .steps import Described, Launch, Slot

# Encoded descriptors that a launch keeps; tensors of a loop have few addresses.
MOST_DESCRIPTORS = 256


@dataclass(frozen=True)
class Ready:
    """A launch, and what of its arguments has to be a tensor."""

    run: Callable[[list[Any], list[int], int], None]
    tensors: tuple[Any, ...]


def launcher(step: Launch) -> Ready:
    """The launch by the adapter of this Triton where there is one, else as Triton does it."""
    by_number = _by_number(step)
    return Ready(_by_tensor(step), step.arguments) if by_number is None else Ready(by_number, ())


def _by_tensor(step: Launch) -> Callable[[list[Any], list[int], int], None]:
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


def _by_number(step: Launch) -> Callable[[list[Any], list[int], int], None] | None:
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
    values, holes = _flat(step, metas, nvidia.make_tensordesc_arg)
    compiled = step.compiled
    head = (compiled.function, found.launch_cooperative_grid, found.launch_pdl)
    if version.startswith("3.6."):
        return _of_3_6(
            start, step.grid, (*head, None, None, compiled.packed_metadata), values, holes
        )
    tail = (None, None, None, None, None, found.arg_annotations, found.kernel_signature)
    return _of_3_7(start, step.grid, (*head, compiled.packed_metadata), tail, values, holes)


# Where in the arguments what comes from a slot stands: the slot's root, the offset, an encoder.
Hole = tuple[int, int, int, Callable[[int], Any] | None]
Tuples = list[tuple[int, list[Any], list[Hole]]]


def _flat(step: Launch, metas: Any, encode: Any) -> tuple[list[Any], tuple[list[Hole], Tuples]]:
    """Arguments as the launcher in C takes them, with holes for what comes from slots."""
    values: list[Any] = []
    holes: list[Hole] = []
    tuples: Tuples = []
    remaining = iter(metas or ())
    for one in step.arguments:
        if isinstance(one, Slot):
            holes.append((len(values), one.root, one.offset, None))
            values.append(None)
        elif isinstance(one, Described):
            encoder = _Encoder(one.descriptor, next(remaining, None), encode)
            holes.append((len(values), one.slot.root, one.slot.offset, encoder))
            values += [None, *encoder.rest]
        elif _varies(one):
            inner = [(i, x.root, x.offset, None) for i, x in enumerate(one) if isinstance(x, Slot)]
            tuples.append((len(values), list(one), inner))  # type: ignore[arg-type]
            values.append(None)
        else:
            values.append(one)
    return values, (holes, tuples)


def _arguments(
    values: list[Any], holes: list[Hole], tuples: Tuples, addresses: list[int]
) -> list[Any]:
    found = values.copy()
    for at, root, offset, encode in holes:
        address = addresses[root] + offset
        found[at] = address if encode is None else encode(address)
    for at, parts, inner in tuples:
        made = parts.copy()
        for i, root, offset, _ in inner:
            made[i] = addresses[root] + offset
        found[at] = tuple(made)
    return found


def _of_3_6(start: Any, grid: Any, head: Any, values: Any, holes: Any) -> Any:
    x, y, z = grid
    singles, tuples = holes

    def launch(tensors: list[Any], addresses: list[int], stream: int) -> None:
        given = _arguments(values, singles, tuples, addresses)
        start(x, y, z, stream, *head, None, None, None, *given)

    return launch


def _of_3_7(start: Any, grid: Any, head: Any, tail: Any, values: Any, holes: Any) -> Any:
    x, y, z = grid
    singles, tuples = holes

    def launch(tensors: list[Any], addresses: list[int], stream: int) -> None:
        start(x, y, z, stream, *head, *tail, _arguments(values, singles, tuples, addresses))

    return launch


class _Encoder:
    """Encodes a descriptor over memory at an address, once for each address."""

    def __init__(self, descriptor: Any, meta: Any, encode: Any) -> None:
        self._known: dict[int, Any] = {}
        self._meta, self._encode = meta, encode
        self.shape, self.strides = list(descriptor.shape), list(descriptor.strides)
        self.padding = descriptor.padding
        self.round_f32_to_tf32 = getattr(descriptor, "round_f32_to_tf32", False)
        self.base: Any = _Address(descriptor.base.data_ptr())
        self.rest = encode(self, meta)[1:]

    def __call__(self, address: int) -> Any:
        found = self._known.get(address)
        if found is None:
            if self._meta is None:  # lowered to an address and numbers
                return address
            if len(self._known) >= MOST_DESCRIPTORS:
                self._known.clear()
            stand_in = copy.copy(self)
            stand_in.base = _Address(address)
            found = self._known[address] = self._encode(stand_in, self._meta)[0]
        return found


@dataclass(frozen=True)
class _Address:
    """What an encoder asks of a tensor."""

    address: int

    def data_ptr(self) -> int:
        return self.address
