"""Global and shared memory as Gluon's kernels see them: pointers, descriptors of the copy engine,
and views of shared memory that know which elements they are of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import triton.language as tl

from warpwatch.simulator.errors import MisuseError
from warpwatch.simulator.machine.order import Barrier, Program
from warpwatch.simulator.machine.races import Cells
from warpwatch.simulator.machine.regions import Region
from warpwatch.simulator.values.blocks import Block, Type, _sizes, block_of
from warpwatch.simulator.values.elements import OF_TORCH, STORED, decode, encode


class Storage:
    """What a tensor's memory holds, as bytes from the address ``begin`` on."""

    def __init__(self, tensor: torch.Tensor) -> None:
        whole = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
        self.bytes = whole.numpy()
        self.begin = whole.data_ptr()
        self.first = tensor.data_ptr()

    def elements(self, dtype: tl.dtype) -> np.ndarray:
        kind = np.dtype(STORED[dtype.name])
        return self.bytes[: self.bytes.size // kind.itemsize * kind.itemsize].view(kind)

    def holds(self, at: np.ndarray, size: int) -> np.ndarray:
        return (at >= self.begin) & (at + size <= self.begin + self.bytes.size)

    def places(self, at: np.ndarray, dtype: tl.dtype, used: np.ndarray) -> np.ndarray:
        """Numbers of the elements at addresses ``at``; 0 where they are not ``used``."""
        size = np.dtype(STORED[dtype.name]).itemsize
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


class Pointer:
    """Addresses (any shape) of elements of ``element_ty``, each within one of ``storages``."""

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
        size = np.dtype(STORED[self.element_ty.name]).itemsize
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
        size = np.dtype(STORED[self.element_ty.name]).itemsize
        for storage in self.storages[:-1]:
            inside = used & storage.holds(at, size)
            used = used & ~inside
            yield storage, inside
        yield self.storages[-1], used

    def load(self, mask: Any = None, other: Any = None) -> Block:
        used = np.asarray(True if mask is None else block_of(mask).data)
        at, used = np.broadcast_arrays(self.at, used)
        # Without ``other`` what is masked is not defined: NaN, or a value nobody expects.
        kind = self.element_ty
        nothing = float("nan") if kind.is_floating() else -77 if kind.is_int_signed() else 77
        beside = block_of(nothing if other is None else other, kind).to(kind).data
        found = np.broadcast_to(beside, np.broadcast_shapes(at.shape, beside.shape)).copy()
        for storage, inside in self._parts(at, used):
            places = storage.places(at, kind, inside)[inside]
            found[inside] = decode(storage.elements(kind)[places], kind)
        return Block(found, kind)

    def store(self, value: Any, mask: Any = None) -> None:
        used = np.asarray(True if mask is None else block_of(mask).data)
        data = block_of(value, self.element_ty).to(self.element_ty).data
        at, used, data = np.broadcast_arrays(self.at, used, data)
        raw = encode(data, self.element_ty)
        for storage, inside in self._parts(at, used):
            places = storage.places(at, self.element_ty, inside)
            storage.elements(self.element_ty)[places[inside]] = raw[inside]


class Descriptor:
    """A tensor as the copy engine sees it: boxes, zeros outside, addresses modulo 2^64."""

    def __init__(self, given: Any) -> None:
        self.storage = Storage(given.base)
        self.dtype = OF_TORCH[given.base.dtype]
        self.sizes, self.strides = list(given.shape), list(given.strides)
        self.block_shape = list(given.block_shape)
        self.layout = None
        if given.padding != "zero":
            raise MisuseError(f"padding {given.padding} is not known")

    def box(self, at: Any) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of elements of a box, and which of them there are; both of block_shape."""
        at = [int(one) for one in at]
        if len(at) != len(self.sizes):
            raise MisuseError(f"expected {len(self.sizes)} coordinates, got {at}")
        size = np.dtype(STORED[self.dtype.name]).itemsize
        place = np.full(self.block_shape, self.storage.first, np.uint64)
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

    def read(self, at: Any) -> np.ndarray:
        place, used = self.box(at)
        raw = self.storage.elements(self.dtype)[place]
        return np.where(used, raw, raw.dtype.type(0))

    def write(self, at: Any, raw: np.ndarray, adds: bool = False) -> None:
        place, used = self.box(at)
        raw = raw.reshape(self.block_shape)
        elements = self.storage.elements(self.dtype)
        if not adds:
            elements[place[used]] = raw[used]
            return
        with np.errstate(over="ignore"):
            total = decode(elements[place[used]], self.dtype) + decode(raw[used], self.dtype)
        elements[place[used]] = encode(total, self.dtype)


class Shared:
    """A view of shared memory: its raw elements, and which ``cells`` of the allocation they are."""

    layout = None

    def __init__(
        self, program: Program, cells: Cells, raw: np.ndarray, at: np.ndarray, dtype: tl.dtype
    ) -> None:
        self.program, self.cells, self.raw, self.at, self.dtype = program, cells, raw, at, dtype
        self._region: Region | None = None

    @property
    def region(self) -> Region:
        """Which part of the allocation this is."""
        if self._region is None:
            self._region = self.cells.region(self.at)
        return self._region

    @classmethod
    def allocate(cls, program: Program, dtype: tl.dtype, shape: Any, value: Any = None) -> Shared:
        shape = _sizes((shape,))
        size = int(np.prod(shape))
        name = f"shared memory {len(program.allocations)} ({dtype} {list(shape)})"
        cells = Cells(name, size, program.parts_of(len(program.allocations), size))
        program.allocations.append(cells)
        raw = np.zeros(shape, STORED[dtype.name])
        # Whoever reads what nobody wrote is told so; the value would be NaN.
        raw.view(np.uint8)[...] = 0xFF
        found = cls(program, cells, raw, np.arange(size).reshape(shape), dtype)
        if value is not None:
            found.store(value)
        return found

    @property
    def shape(self) -> list[int]:
        return list(self.raw.shape)

    @property
    def numel(self) -> int:
        return self.raw.size

    @property
    def type(self) -> Type:
        return Type(self.dtype, self.raw.shape)

    def _of(self, raw: np.ndarray, at: np.ndarray) -> Shared:
        return Shared(self.program, self.cells, raw, at, self.dtype)

    def index(self, i: Any) -> Shared:
        i = int(i)
        if not 0 <= i < self.raw.shape[0]:
            raise MisuseError(
                f"index {i} of {self.cells.what}, a view of {self.shape}", "address out of bounds"
            )
        return self._of(self.raw[i], self.at[i])

    def slice(self, start: Any, length: int, dim: int = 0) -> Shared:
        start = int(start)
        if not 0 <= start <= start + length <= self.raw.shape[dim]:
            raise MisuseError(
                f"slice [{start}, {start + length}) of axis {dim} of {self.shape}",
                "address out of bounds",
            )
        part = tuple(
            slice(start, start + length) if axis == dim else slice(None)
            for axis in range(self.raw.ndim)
        )
        return self._of(self.raw[part], self.at[part])

    def reshape(self, *shape: Any) -> Shared:
        raw = self.raw.reshape(_sizes(shape))
        if not np.shares_memory(raw, self.raw):
            raise MisuseError(f"a view of {self.shape} cannot be reshaped to {list(raw.shape)}")
        return self._of(raw, self.at.reshape(_sizes(shape)))

    def _reinterpret(self, dtype: tl.dtype, shape: Any, layout: None = None) -> Shared:
        if dtype != self.dtype or int(np.prod(_sizes((shape,)))) != self.numel:
            raise MisuseError(f"a view of {self.dtype} of {self.shape} as {dtype} of {shape}")
        return self.reshape(*_sizes((shape,)))

    def permute(self, *order: Any) -> Shared:
        return self._of(self.raw.transpose(_sizes(order)), self.at.transpose(_sizes(order)))

    def load(self, layout: None = None) -> Block:
        self.cells.reads(self.region, self.program.now)
        return Block(decode(self.raw, self.dtype).copy(), self.dtype)

    def store(self, value: Block) -> None:
        if value.dtype != self.dtype or value.shape != self.raw.shape:
            raise MisuseError(
                f"expected {self.dtype} of {self.shape} to store, got {value.dtype} of "
                f"{list(value.shape)}"
            )
        self.cells.writes(self.region, self.program.now, self.program.unused)
        self.raw[...] = encode(value.data, self.dtype)

    def barrier(self) -> Barrier:
        key = (id(self.cells), int(self.at.reshape(-1)[0]))
        if self.raw.size != 1 or key not in self.program.barriers:
            raise MisuseError(f"{self.cells.what}: no barrier was initialised there")
        return self.program.barriers[key]
