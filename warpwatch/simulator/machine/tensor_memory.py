"""Tensor memory of Blackwell, and the tensor core that fills it beside a partition's threads.

The tensor core does what one partition asks of it in the order in which it was asked for. It knows
what that partition knew then. Others learn how far it is from barriers that it arrives at.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl

from warpwatch.simulator.errors import Learned, MisuseError
from warpwatch.simulator.machine.engines import program
from warpwatch.simulator.machine.races import Cells, Partition
from warpwatch.simulator.machine.regions import Region
from warpwatch.simulator.machine.shared_memory import Shared
from warpwatch.simulator.values.blocks import (
    ANY_LAYOUT,
    Block,
    Layout,
    Shape,
    Type,
    _sizes,
    block_of,
)
from warpwatch.simulator.values.elements import KEPT, decode, rounded

ROWS, COLUMNS = 128, 512  # of 32 bits


class TensorMemory(Learned):
    """A view of tensor memory: its values, and which ``cells`` of the allocation they are."""

    said = "tensor_memory_descriptor"
    layout = ANY_LAYOUT

    def __init__(self, cells: Cells, values: np.ndarray, at: np.ndarray, dtype: tl.dtype) -> None:
        self.cells, self.values, self.at, self.dtype = cells, values, at, dtype

    @property
    def region(self) -> Region:
        """Which part of the allocation this is."""
        return self.cells.region(self.at)

    @property
    def shape(self) -> Shape:
        """The lengths of its axes."""
        return Shape(self.values.shape)

    @property
    def type(self) -> Type:
        """Its type."""
        return Type(self.dtype, self.values.shape)

    def _of(self, values: np.ndarray, at: np.ndarray) -> TensorMemory:
        return TensorMemory(self.cells, values, at, self.dtype)

    def index(self, i: Any) -> TensorMemory:
        """One of the first axis."""
        i = int(i)
        if not 0 <= i < self.values.shape[0]:
            raise MisuseError(f"index {i} of {self.cells.what}", "address out of bounds")
        return self._of(self.values[i], self.at[i])

    def slice(self, start: Any, length: int, dim: int = -1) -> TensorMemory:
        """Columns of it."""
        start, length = int(start), int(length)
        if not 0 <= start <= start + length <= self.values.shape[-1]:
            raise MisuseError(
                f"columns [{start}, {start + length}) of {self.cells.what}", "address out of bounds"
            )
        part = (..., slice(start, start + length))
        return self._of(self.values[part], self.at[part])

    def get_reg_layout(self, *given: Any, **named: Any) -> Layout:
        """A layout of registers that suits it."""
        return ANY_LAYOUT

    def load_max(self, layout: Any = None, abs: bool = False, **hints: Any) -> Any:
        """Its values, and the largest of every row."""
        values = self.load()
        kept = Block(np.abs(values.data), self.dtype) if abs else values
        return values, Block(np.fmax.reduce(kept.data, axis=-1), self.dtype)

    def load_min(self, layout: Any = None, abs: bool = False, **hints: Any) -> Any:
        """Its values, and the smallest of every row."""
        values = self.load()
        kept = Block(np.abs(values.data), self.dtype) if abs else values
        return values, Block(np.fmin.reduce(kept.data, axis=-1), self.dtype)

    def load(self, layout: Any = None) -> Block:
        """Its values, in registers."""
        self.cells.reads(self.region, program().now)
        program().note(f"load {self.cells.what}")
        return Block(self.values.copy(), self.dtype)

    def store(self, value: Any, pred: Any = True) -> None:
        """Values of registers."""
        if not bool(pred):
            return
        value = block_of(value)
        if value.dtype != self.dtype or value.data.shape != self.values.shape:
            raise MisuseError(
                f"expected {self.dtype} of {tuple(self.shape)} to store, got {value.dtype} of "
                f"{tuple(value.shape)}"
            )
        self.cells.writes(self.region, program().now, [])
        program().now.unfenced.pop()  # no fence orders it: the instruction that follows waits
        self.values[...] = value.data


def allocate(
    element_ty: tl.dtype, shape: Any, layout: Any = None, value: Any = None
) -> TensorMemory:
    """Allocate tensor memory."""
    sizes = _sizes((shape,))
    size = int(np.prod(sizes))
    one = program()
    name = f"tensor memory {len(one.allocations)} ({element_ty} {list(sizes)})"
    cells = Cells(name, size, one.parts_of(len(one.allocations), size))
    one.allocations.append(cells)
    values = np.zeros(sizes, KEPT[element_ty.name])
    if element_ty.is_floating():
        values[...] = np.nan
    found = TensorMemory(cells, values, np.arange(size).reshape(sizes), element_ty)
    if value is not None:
        found.store(value)
    return found


def _asked() -> Partition:
    """The tensor core of the partition that runs, which knows what that one knows now."""
    one = program()
    core = one.core_of(one.now)
    np.maximum(core.known, one.now.known, out=core.known)
    one.now.tick()
    core.tick()
    core.worked = core.clock
    return core


def _read(operand: Any, core: Partition) -> np.ndarray:
    if not isinstance(operand, Shared | TensorMemory):
        raise MisuseError(f"expected shared or tensor memory, got {type(operand).__name__}")
    why = operand.cells.objection(operand.region, core, engine=isinstance(operand, Shared))
    if why:
        raise why
    operand.cells.has_read(operand.region, core, core.clock, program().site())
    if isinstance(operand, Shared):
        return decode(operand.raw, operand.dtype)
    return operand.values


def _arrive(barriers: Any, preds: Any, core: Partition) -> None:
    wanted = [True] * len(barriers) if preds is None else list(preds)
    for barrier, pred in zip(barriers, wanted, strict=True):
        if bool(pred):
            barrier.barrier().arrive(core)


def multiply(
    a: Any,
    b: Any,
    acc: TensorMemory,
    *,
    use_acc: Any = True,
    pred: Any = True,
    multicast: bool = False,
    mbarriers: Any = None,
    mbarrier_preds: Any = None,
) -> None:
    """acc = a @ b, or more of it; done when a barrier says so that is arrived at later."""
    if multicast:
        raise MisuseError("a product with multicast needs a cluster", "unknown word")
    if bool(pred):
        if a.dtype != b.dtype:
            raise MisuseError(f"expected operands of one type, got {a.dtype} and {b.dtype}")
        if a.shape[-1] != b.shape[0] or tuple(acc.shape) != (a.shape[0], b.shape[1]):
            raise MisuseError(
                f"shapes do not fit: {list(a.shape)} @ {list(b.shape)} + {list(acc.shape)}"
            )
        core = _asked()
        left, right = (np.asarray(_read(one, core), np.float32) for one in (a, b))
        with np.errstate(all="ignore"):
            value = left @ right
            if bool(use_acc):
                value = value + _read(acc, core)
        acc.cells.writes(acc.region, core, [])
        core.unfenced.pop()
        acc.values[...] = rounded(value, acc.dtype)
        if (log := program().log) is not None:
            log.multiplies(program().now, acc)
    if mbarriers:
        _arrive(mbarriers, mbarrier_preds, program().core_of(program().now))
    program().let_others()


def copy(src: Shared, dst: TensorMemory) -> None:
    """Copy shared memory to tensor memory; done when a barrier says so."""
    core = _asked()
    values = _read(src, core)
    if values.size != dst.values.size:
        raise MisuseError(f"a copy of {list(src.shape)} to {list(dst.shape)}")
    dst.cells.writes(dst.region, core, [])
    core.unfenced.pop()
    dst.values[...] = values.reshape(dst.values.shape)
    program().let_others()


def commit(barrier: Shared, pred: Any = True, descs: Any = ()) -> None:
    """Arrive at a barrier when all that the tensor core was asked for before is done."""
    if bool(pred):
        _arrive([barrier], None, program().core_of(program().now))
        program().let_others()
