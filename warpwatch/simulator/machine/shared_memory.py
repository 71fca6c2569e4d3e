"""Views of shared memory, which know which elements of their allocation they are of."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl

from warpwatch.simulator.errors import Learned, MisuseError
from warpwatch.simulator.machine.barriers import Barrier
from warpwatch.simulator.machine.order import Program
from warpwatch.simulator.machine.races import Cells
from warpwatch.simulator.machine.regions import Region
from warpwatch.simulator.values.blocks import ANY_LAYOUT, Block, Type, _sizes
from warpwatch.simulator.values.elements import STORED, decode, encode


class Shared(Learned):
    """A view of shared memory: its raw elements, and which ``cells`` of the allocation they are."""

    said = "shared_memory_descriptor"
    layout = ANY_LAYOUT

    def __init__(
        self, program: Program, cells: Cells, raw: np.ndarray, at: np.ndarray, dtype: tl.dtype
    ) -> None:
        self.program, self.cells, self.raw, self.at, self.dtype = program, cells, raw, at, dtype
        self._region: Region | None = None
        self._outside: MisuseError | None = None  # what is wrong with it, once it is used

    @property
    def region(self) -> Region:
        """Which part of the allocation this is."""
        if self._outside is not None:
            raise self._outside
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
        found = Shared(self.program, self.cells, raw, at, self.dtype)
        found._outside = self._outside
        return found

    def index(self, i: Any) -> Shared:
        i = int(i)
        if not 0 <= i < self.raw.shape[0]:
            # A kernel may compute an address that it does not use.
            found = self._of(self.raw[0], self.at[0])
            found._outside = MisuseError(
                f"index {i} of {self.cells.what}, a view of {self.shape}", "address out of bounds"
            )
            return found
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

    def _reinterpret(self, dtype: tl.dtype, shape: Any, layout: Any = None) -> Shared:
        if dtype != self.dtype or int(np.prod(_sizes((shape,)))) != self.numel:
            raise MisuseError(f"a view of {self.dtype} of {self.shape} as {dtype} of {shape}")
        return self.reshape(*_sizes((shape,)))

    def permute(self, *order: Any) -> Shared:
        return self._of(self.raw.transpose(_sizes(order)), self.at.transpose(_sizes(order)))

    def load(self, layout: Any = None) -> Block:
        self.cells.reads(self.region, self.program.now)
        self.program.note(f"load {self.cells.what}")
        return Block(decode(self.raw, self.dtype).copy(), self.dtype)

    def store(self, value: Block) -> None:
        if value.dtype != self.dtype or value.shape != self.raw.shape:
            raise MisuseError(
                f"expected {self.dtype} of {self.shape} to store, got {value.dtype} of "
                f"{list(value.shape)}"
            )
        self.cells.writes(self.region, self.program.now, self.program.unused)
        self.program.note(f"store {self.cells.what}")
        self.raw[...] = encode(value.data, self.dtype)

    def barrier(self) -> Barrier:
        if self.raw.size != 1 or self.key not in self.program.barriers:
            raise MisuseError(f"{self.cells.what}: no barrier was initialised there")
        return self.program.barriers[self.key]

    @property
    def key(self) -> tuple[int, int]:
        """Which barrier this is."""
        if self._outside is not None:
            raise self._outside
        return (id(self.cells), int(self.at.reshape(-1)[0]))
