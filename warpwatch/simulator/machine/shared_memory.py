"""Views of shared memory, which know which elements of their allocation they are of."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl

from warpwatch.simulator.errors import Learned, MisuseError
from warpwatch.simulator.machine.barriers import Barrier
from warpwatch.simulator.machine.clusters import Part, Split, parts_of, spread
from warpwatch.simulator.machine.order import Program
from warpwatch.simulator.machine.races import PARTITIONS, Cells, Partition
from warpwatch.simulator.machine.regions import Region
from warpwatch.simulator.values.blocks import Block
from warpwatch.simulator.values.elements import STORED, decode, encode
from warpwatch.simulator.values.layouts import ANY_LAYOUT, Layout, Type, sizes_of


def room_for(program: Program, what: str, shape: tuple[int, ...], layout: Any) -> Cells:
    """Memory for a tensor, in every CTA of the cluster its part.

    Args:
        program: Whose memory it is.
        what: Its name in reports, with a place for its number.
        shape: The lengths of its axes.
        layout: The layout, which says how it is spread.

    Returns:
        What is known of it.
    """
    size, number = math.prod(shape), len(program.allocations)
    parts = program.parts_of(number, size)
    name = what.format(number)
    if program.ctas == 1:
        program.allocations.append(Cells(name, size, parts))
        return program.allocations[-1]
    made = [
        Cells(f"{name} of CTA {cta}", size, parts, PARTITIONS * program.ctas)
        for cta in range(program.ctas)
    ]
    spread(made[0], made[1:], Split(program.ctas, layout, len(shape)), shape)
    program.allocations.append(made[0])
    return made[0]


def barrier_at(given: Any) -> Shared:
    """Shared memory that is given as a barrier."""
    if not isinstance(given, Shared):
        raise MisuseError(f"expected a barrier in shared memory, got {type(given).__name__}")
    return given


class Shared(Learned):
    """A view of shared memory: its raw elements, and which ``cells`` of the allocation they are."""

    said = "shared_memory_descriptor"

    def __init__(
        self, program: Program, cells: Cells, flat: np.ndarray, at: np.ndarray, dtype: tl.dtype
    ) -> None:
        self.program, self.cells, self.at, self.dtype = program, cells, at, dtype
        self.flat = flat  # the whole allocation
        self.layout: Layout = ANY_LAYOUT
        self._raw: np.ndarray | None = None
        self._region: Region | None = None
        self._parts: tuple[Part, ...] = ()
        self._keys: list[tuple[int, int, int]] = []
        self._views: dict[Any, Shared] = {}  # that were made of this one
        self._outside: MisuseError | None = None  # what is wrong with it, once it is used

    @property
    def raw(self) -> np.ndarray:
        """Its elements as memory holds them: a view of them where numpy has one."""
        if self._raw is not None:
            return self._raw
        return self.flat[self.at]

    def put(self, raw: np.ndarray) -> None:
        """Write all of its elements."""
        if self._raw is not None:
            self._raw[...] = raw.reshape(self._raw.shape)
        else:
            self.flat[self.at] = raw.reshape(self.at.shape)

    @property
    def region(self) -> Region:
        """Which part of the allocation this is."""
        if self._outside is not None:
            raise self._outside
        if self._region is None:
            self._region = self.cells.region(self.at)
        return self._region

    @property
    def parts(self) -> tuple[Part, ...]:
        """What each CTA of the cluster has of it."""
        if not self._parts:
            self._parts = parts_of(self.cells, self.at, self.region)
        return self._parts

    @classmethod
    def allocate(
        cls, program: Program, dtype: tl.dtype, shape: Any, value: Any = None, layout: Any = None
    ) -> Shared:
        """Allocate shared memory."""
        shape = sizes_of((shape,))
        cells = room_for(program, f"shared memory {{}} ({dtype} {list(shape)})", shape, layout)
        flat = np.empty(math.prod(shape), STORED[dtype.name])
        # Whoever reads what nobody wrote is told so; the value would be NaN.
        flat.view(np.uint8)[...] = 0xFF
        found = cls(program, cells, flat, np.arange(flat.size).reshape(shape), dtype)
        found._raw = flat.reshape(shape)
        found.layout = layout if isinstance(layout, Layout) else Layout.like(layout)
        if value is not None:
            found.store(value)
        return found

    @property
    def shape(self) -> list[int]:
        return list(self.at.shape)

    @property
    def rank(self) -> int:
        """How many axes it has."""
        return self.at.ndim

    @property
    def numel(self) -> int:
        return self.at.size

    @property
    def type(self) -> Type:
        made = Type(self.dtype, self.at.shape)
        made.layout = self.layout
        return made

    def _of(self, key: Any, change: Callable[[np.ndarray], np.ndarray]) -> Shared:
        """The view that ``change`` makes of an array, which ``key`` tells from others."""
        found = self._views.get(key)
        if found is None:
            found = self._views[key] = self._made(change)
        return found

    def _made(self, change: Callable[[np.ndarray], np.ndarray]) -> Shared:
        found = Shared(self.program, self.cells, self.flat, change(self.at), self.dtype)
        if self._raw is not None:
            raw = change(self._raw)
            found._raw = raw if np.may_share_memory(raw, self._raw) else None
        found._outside, found.layout = self._outside, self.layout
        return found

    def index(self, i: Any) -> Shared:
        i = int(i)
        if not 0 <= i < self.at.shape[0]:
            # A kernel may compute an address that it does not use.
            found = self._made(lambda one: one[0])
            found._outside = MisuseError(
                f"index {i} of {self.cells.what}, a view of {self.shape}", "address out of bounds"
            )
            return found
        return self._of(i, lambda one: one[i])

    def slice(self, start: Any, length: int, dim: int = 0) -> Shared:
        start = int(start)
        if not 0 <= start <= start + length <= self.at.shape[dim]:
            raise MisuseError(
                f"slice [{start}, {start + length}) of axis {dim} of {self.shape}",
                "address out of bounds",
            )
        part = tuple(
            slice(start, start + length) if axis == dim else slice(None)
            for axis in range(self.at.ndim)
        )
        if type(length) is not int or type(dim) is not int:
            return self._made(lambda one: one[part])
        return self._of((start, length, dim), lambda one: one[part])

    def reshape(self, *shape: Any) -> Shared:
        sizes = sizes_of(shape)
        if math.prod(sizes) != self.numel:
            raise MisuseError(f"a view of {self.shape} cannot be reshaped to {list(sizes)}")
        return self._of(("reshape", sizes), lambda one: one.reshape(sizes))

    def _reinterpret(self, dtype: tl.dtype, shape: Any, layout: Any = None) -> Shared:
        sizes = sizes_of((shape,))
        own, item = self.flat.itemsize, np.dtype(STORED[dtype.name]).itemsize
        wrong = f"a view of {self.dtype} of {self.shape} as {dtype} of {list(sizes)}"
        if math.prod(sizes) * item != self.numel * own:
            raise MisuseError(wrong)
        if dtype == self.dtype:
            return self.reshape(*sizes)
        key = ("as", dtype.name, sizes, repr(layout))
        if key not in self._views:
            flat = self.at.reshape(-1)
            whole = bool((np.diff(flat) == 1).all()) and int(flat[0]) * own % item == 0
            whole = whole and self.flat.nbytes % item == 0
            plain = len(self.cells.ctas) == 1 and self.cells.items == (1, 1)
            if not whole or not plain or max(own, item) > 2 * min(own, item):
                raise MisuseError(
                    f"{wrong}: only a run of an allocation, as elements of half or double size"
                )
            first, size = int(flat[0]) * own // item, math.prod(sizes)
            raw, at = self.flat.view(STORED[dtype.name]), first + np.arange(size).reshape(sizes)
            cells = copy.copy(self.cells)  # who wrote and read is of both
            cells.items = (item, own)
            found = Shared(self.program, cells, raw, at, dtype)
            found._raw = raw[first : first + size].reshape(sizes)
            found.layout = layout if isinstance(layout, Layout) else Layout.like(layout)
            found._outside = self._outside
            self._views[key] = found
        return self._views[key]

    def permute(self, *order: Any) -> Shared:
        axes = sizes_of(order)
        return self._of(("permute", axes), lambda one: one.transpose(axes))

    def load(self, layout: Any = None) -> Block:
        for cta, cells, region in self.parts:
            cells.reads(region, self.program.now.ctas[cta])
        self.program.note(f"load {self.cells.what}")
        raw = self.raw
        values = decode(raw, self.dtype)
        if values is raw or not values.flags.c_contiguous:
            values = values.copy()
        return Block(values, self.dtype)

    def store(self, value: Block) -> None:
        if value.dtype != self.dtype or value.shape != self.at.shape:
            raise MisuseError(
                f"expected {self.dtype} of {self.shape} to store, got {value.dtype} of "
                f"{list(value.shape)}"
            )
        for cta, cells, region in self.parts:
            cells.writes(region, self.program.now.ctas[cta], self.program.unused)
        self.program.note(f"store {self.cells.what}")
        self.put(encode(value.data, self.dtype))

    def _keep_alive(self) -> None:
        """It is in use until here."""

    def barriers(self) -> list[Barrier]:
        """The barrier that this is, of every CTA of the cluster."""
        found = [self.program.barriers.get(key) for key in self.keys]
        split = self.cells.split
        if self.numel != (1 if split is None else split.pieces) or None in found:
            raise MisuseError(f"{self.cells.what}: no barrier was initialised there")
        return found  # type: ignore[return-value]  # none of them is None

    def waiting(self) -> list[tuple[Partition, Barrier]]:
        """Who waits at which of these barriers: of CTAs that share one, only the first does."""
        now, split = self.program.now.ctas, self.cells.split
        return [
            (now[cta], one)
            for cta, one in enumerate(self.barriers())
            if split is None or split.lead(cta) == cta
        ]

    @property
    def keys(self) -> list[tuple[int, int, int]]:
        """Which barrier this is, in every CTA."""
        if self._outside is not None:
            raise self._outside
        if not self._keys:
            first = int(self.at.reshape(-1)[0])
            self._keys = [(id(self.cells), first, cta) for cta in range(self.program.ctas)]
        return self._keys
