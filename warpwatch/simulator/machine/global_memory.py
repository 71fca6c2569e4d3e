"""Global memory as kernels see it: pointers, and tensors as the copy engine describes them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import triton.language as tl

from warpwatch.simulator.errors import Learned, MisuseError, UnknownWordError
from warpwatch.simulator.machine.windows import Window, window_of
from warpwatch.simulator.values import unwritten
from warpwatch.simulator.values.blocks import Block, block_of
from warpwatch.simulator.values.elements import (
    OF_TORCH,
    STORED,
    computed,
    decode,
    encode,
    item_size,
)
from warpwatch.simulator.values.layouts import ANY_LAYOUT, Layout, Type, sizes_of


class Storage:
    """What a tensor's memory holds, as bytes from the address ``begin`` on."""

    def __init__(self, tensor: torch.Tensor) -> None:
        whole = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
        self.bytes = whole.numpy()
        self.begin = whole.data_ptr()
        # Which bytes somebody wrote, where that is known.
        self.written = unwritten.watched[-1].mask(self.begin) if unwritten.watched else None
        self.first = tensor.data_ptr()
        self._elements: dict[str, np.ndarray] = {}

    def elements(self, dtype: tl.dtype) -> np.ndarray:
        found = self._elements.get(dtype.name)
        if found is None:
            kind = np.dtype(STORED[dtype.name])
            found = self.bytes[: self.bytes.size // kind.itemsize * kind.itemsize].view(kind)
            self._elements[dtype.name] = found
        return found

    def wrote(self, places: np.ndarray, dtype: tl.dtype) -> None:
        """Elements with these numbers are written."""
        if self.written is not None:
            size = item_size(dtype)
            whole = self.written[: self.written.size // size * size].reshape(-1, size)
            whole[places] = True

    def check_written(self, places: np.ndarray, dtype: tl.dtype) -> None:
        """A kernel reads elements with these numbers."""
        if self.written is not None:
            size = item_size(dtype)
            bare = ~self.written[places * size]
            if bare.any():
                first = int(places[bare].reshape(-1)[0])
                raise MisuseError(
                    f"element {first} of a tensor's memory is read, which nobody wrote",
                    "value nobody wrote",
                )

    def holds(self, at: np.ndarray, size: int) -> np.ndarray:
        return (at >= self.begin) & (at + size <= self.begin + self.bytes.size)

    def places(self, at: np.ndarray, dtype: tl.dtype, used: np.ndarray) -> np.ndarray:
        """Numbers of the elements at addresses ``at``; 0 where they are not ``used``."""
        size = item_size(dtype)
        outside = used & ~self.holds(at, size)
        if outside.any():
            wrong = int(at[outside].reshape(-1)[0]) - self.begin
            raise MisuseError(
                f"byte {wrong} of a tensor's memory of {self.bytes.size} bytes is touched",
                "address out of bounds",
            )
        if (used & ((at - self.begin) % size != 0)).any():
            raise MisuseError(f"an address is no multiple of {size} bytes")
        return np.where(used, (at - self.begin) // size, 0)


class PointerType:
    def __init__(self, element_ty: tl.dtype) -> None:
        self.element_ty = element_ty
        self.scalar = self


class Pointer(Learned):
    """Addresses (any shape) of elements of ``element_ty``, each within one of ``storages``."""

    said = "pointer"
    __hash__ = None  # type: ignore[assignment]  # == compares element by element

    def __init__(
        self, storages: tuple[Storage, ...], at: np.ndarray | int, element_ty: tl.dtype
    ) -> None:
        self.storages, self.at, self.element_ty = storages, np.asarray(at, np.int64), element_ty

    @property
    def dtype(self) -> PointerType:
        return PointerType(self.element_ty)

    type = dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.at.shape

    def __add__(self, other: Any) -> Pointer:
        size = item_size(self.element_ty)
        moved = np.asarray(block_of(other).data).astype(np.int64) * size
        return Pointer(self.storages, self.at + moved, self.element_ty)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Pointer:
        return self + -block_of(other)

    def __getitem__(self, at: Any) -> Pointer:
        return Pointer(self.storages, self.at[at], self.element_ty)

    def or_else(self, condition: np.ndarray, other: Pointer) -> Pointer:
        """These where ``condition`` holds, elsewhere the ``other`` ones."""
        if other.element_ty != self.element_ty:
            raise MisuseError(f"pointers to {self.element_ty} and to {other.element_ty}")
        at = np.where(condition, self.at, other.at)
        return Pointer((*self.storages, *other.storages), at, self.element_ty)

    def _parts(self, at: np.ndarray, used: np.ndarray) -> Iterator[tuple[Storage, np.ndarray]]:
        """Each storage with which of the addresses are in it; the last one has the others."""
        size = item_size(self.element_ty)
        for storage in self.storages[:-1]:
            inside = used & storage.holds(at, size)
            used = used & ~inside
            yield storage, inside
        yield self.storages[-1], used

    def _all(self) -> Block | None:
        """What is at all of these addresses, if one storage has them."""
        storage, kind = self.storages[0], self.element_ty
        size, at = item_size(kind), self.at - self.storages[0].begin
        if len(self.storages) > 1 or not at.size or at.min() < 0 or (at % size).any():
            return None
        if at.max() + size > storage.bytes.size:
            return None
        places = np.ascontiguousarray(at // size).reshape(at.shape)
        storage.check_written(places, kind)
        return Block(decode(np.asarray(storage.elements(kind)[places]), kind), kind)

    def load(self, mask: Any = None, other: Any = None) -> Block:
        if mask is None and other is None and (whole := self._all()) is not None:
            return whole
        used = np.asarray(True if mask is None else block_of(mask).data)
        at, used = np.broadcast_arrays(self.at, used)
        # Without ``other`` what is masked is not defined: NaN, or a value nobody expects.
        kind = self.element_ty
        nothing = float("nan") if kind.is_floating() else -77 if kind.is_int_signed() else 77
        beside = block_of(nothing if other is None else other, kind).to(kind).data
        found = np.broadcast_to(beside, np.broadcast_shapes(at.shape, beside.shape)).copy()
        for storage, inside in self._parts(at, used):
            places = storage.places(at, kind, inside)[inside]
            storage.check_written(places, kind)
            found[inside] = decode(storage.elements(kind)[places], kind)
        return Block(found, kind)

    def store(self, value: Any, mask: Any = None) -> None:
        used = np.asarray(True if mask is None else block_of(mask).data)
        data = block_of(value, self.element_ty).to(self.element_ty).data
        at, used, data = np.broadcast_arrays(self.at, used, data)
        raw = encode(data, self.element_ty)
        for storage, inside in self._parts(at, used):
            places = storage.places(at, self.element_ty, inside)[inside]
            storage.elements(self.element_ty)[places] = raw[inside]
            storage.wrote(places, self.element_ty)

    def update(self, value: Any, mask: Any, change: Any) -> tuple[Block, bool]:
        """An atomic of every address, one after the other: ``change`` makes of what was there and
        of ``value`` what is there then. What was there, and whether anything is another now."""
        kind = self.element_ty
        used = np.asarray(True if mask is None else block_of(mask).data)
        data = block_of(value, kind).to(kind).data
        at, used, data = np.broadcast_arrays(self.at, used, data)
        found, differs = np.zeros(at.shape, data.dtype), False
        for storage, inside in self._parts(at, used):
            elements = storage.elements(kind)
            places = storage.places(at, kind, inside)
            storage.check_written(places[inside], kind)
            for number in zip(*np.nonzero(np.atleast_1d(inside)), strict=True):
                one = number if at.ndim else ()
                place = places[one]
                before = decode(elements[place : place + 1], kind)
                found[one] = before[0]
                after = computed(change, before, data[one])
                elements[place : place + 1] = encode(np.asarray(after, before.dtype), kind)
                differs = differs or bool((after != before).any())
        return Block(found, kind), differs


class Descriptor(Learned):
    """A tensor as the copy engine sees it: boxes, zeros outside, addresses modulo 2^64.

    Args:
        base: Where the tensor begins.
        sizes: Its axes' lengths.
        strides: Its axes' strides, in elements.
        block_shape: The lengths of a box.
    """

    said = "tensor_descriptor"
    layout: Layout = ANY_LAYOUT

    def __init__(self, base: Pointer, sizes: Any, strides: Any, block_shape: Any) -> None:
        self.storage, self._first = base.storages[0], int(base.at)
        self.dtype = base.element_ty
        self.sizes, self.strides = list(sizes_of((sizes,))), list(sizes_of((strides,)))
        self.block_shape = list(sizes_of((block_shape,)))
        self.numel = math.prod(self.block_shape)

    @classmethod
    def of_host(cls, given: Any) -> Descriptor:
        """What host code describes."""
        if given.padding != "zero":
            raise UnknownWordError(f"a tensor descriptor with padding {given.padding!r}")
        storage = Storage(given.base)
        base = Pointer((storage,), storage.first, OF_TORCH[given.base.dtype])
        made = cls(base, list(given.shape), list(given.strides), list(given.block_shape))
        made.layout = Layout.like(getattr(given, "layout", None))
        return made

    @property
    def shape(self) -> list[Block]:
        """The tensor's lengths, as a kernel sees them."""
        return [block_of(one) for one in self.sizes]

    @property
    def type(self) -> Descriptor:
        """Its type is asked of what it is asked of itself."""
        return self

    @property
    def block_type(self) -> Type:
        """The type of a box."""
        return Type(self.dtype, tuple(self.block_shape))

    @property
    def nbytes_per_cta(self) -> int:
        """The bytes of a box that one CTA gets."""
        whole = self.numel * item_size(self.dtype)
        return int(whole >> sum(any(basis) for basis in self.layout.cga_layout))

    def load(self, at: Any) -> Block:
        """A box, as plain Triton loads it."""
        return Block(decode(self.read(at), self.dtype), self.dtype)

    def store(self, at: Any, value: Any) -> None:
        """A box, as plain Triton stores it."""
        self.write(at, encode(block_of(value).to(self.dtype).data, self.dtype))

    def atomic_add(self, at: Any, value: Any) -> None:
        """Add a box."""
        self.write(at, encode(block_of(value).to(self.dtype).data, self.dtype), adds=True)

    def rows(self, numbers: Any, column: Any) -> tuple[np.ndarray, np.ndarray]:
        """As ``box``, of the rows with these ``numbers``, each from a ``column`` on."""
        wide = np.asarray(block_of(numbers).data, np.int64)[:, None]
        along = int(column) + np.arange(self.block_shape[-1], dtype=np.int64)[None, :]
        used = (wide >= 0) & (wide < self.sizes[0]) & (along >= 0) & (along < self.sizes[1])
        size = item_size(self.dtype)
        at = self._first + (wide * self.strides[0] + along * self.strides[1]) * size
        return self.storage.places(at, self.dtype, used), used

    def box(self, at: Any) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of elements of a box, and which of them there are; both of block_shape."""
        at = [int(one) for one in at]
        if len(at) != len(self.sizes):
            raise MisuseError(f"expected {len(self.sizes)} coordinates, got {at}")
        size = item_size(self.dtype)
        place = np.full(self.block_shape, self._first, np.uint64)
        used = np.ones(self.block_shape, np.bool_)
        for axis, (first, stride) in enumerate(zip(at, self.strides, strict=True)):
            if not -(2**31) <= first < 2**31:
                raise MisuseError(f"coordinate {first} is no int32")
            along = first + np.arange(self.block_shape[axis], dtype=np.int64)
            shape = [-1 if axis == one else 1 for one in range(len(at))]
            used &= ((along >= 0) & (along < self.sizes[axis])).reshape(shape)
            with np.errstate(over="ignore"):
                moved = along.astype(np.uint64) * np.uint64(stride * size % 2**64)
                place += moved.reshape(shape)
        return self.storage.places(place.view(np.int64), self.dtype, used), used

    def window(self, at: Any) -> Window | None:
        """What there is of a box, as a view of memory; None if it is none, or wrong: see box."""
        axes = self.sizes, self.strides, self.block_shape
        return window_of(self.storage, self._first, item_size(self.dtype), at, axes)

    def read(self, at: Any) -> np.ndarray:
        window = self.window(at)
        if window is None:
            return self.taken(*self.box(at))
        found = window.elements(np.dtype(STORED[self.dtype.name]))
        if window.whole:
            return found.copy()
        raw = np.zeros(self.block_shape, found.dtype)
        raw[window.parts] = found
        return raw

    def taken(self, place: np.ndarray, used: np.ndarray) -> np.ndarray:
        """What is at these places, zeros where they are not ``used``."""
        raw = self.storage.elements(self.dtype)[place]
        return np.where(used, raw, raw.dtype.type(0))

    def write(
        self, at: Any, raw: np.ndarray, adds: bool = False, window: Window | None = None
    ) -> None:
        window = window or self.window(at)
        if window is not None and window.apart:
            window.put(raw.reshape(self.block_shape), self.dtype, adds)
            return
        place, used = self.box(at)
        self.put(place, used, raw.reshape(self.block_shape), adds)

    def put(self, place: np.ndarray, used: np.ndarray, raw: np.ndarray, adds: bool = False) -> None:
        """Write, or add, what is ``used`` of ``raw`` at these places."""
        elements = self.storage.elements(self.dtype)
        self.storage.wrote(place[used], self.dtype)
        if not adds:
            elements[place[used]] = raw[used]
            return
        before = decode(elements[place[used]], self.dtype)
        total = computed(np.add, before, decode(raw[used], self.dtype))
        elements[place[used]] = encode(total, self.dtype)
