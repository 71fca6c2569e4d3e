"""Tensor memory of Blackwell, and the tensor core that fills it beside a partition's threads.

The tensor core does what one partition asks of it in the order in which it was asked for. It knows
what that partition knew then. Others learn how far it is from barriers that it arrives at.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl

from warpwatch.simulator.errors import Learned, MisuseError, RaceError, here
from warpwatch.simulator.machine import engines
from warpwatch.simulator.machine.clusters import Part, partners, parts_of
from warpwatch.simulator.machine.engines import program
from warpwatch.simulator.machine.races import Cells, Partition
from warpwatch.simulator.machine.regions import Region
from warpwatch.simulator.machine.shared_memory import Shared, barrier_at, room_for
from warpwatch.simulator.values.block_scales import factors_of, scaled_by, widened
from warpwatch.simulator.values.blocks import Block, block_of
from warpwatch.simulator.values.elements import KEPT, computed, decode, rounded
from warpwatch.simulator.values.layouts import ANY_LAYOUT, Layout, Shape, Type, sizes_of

ROWS, COLUMNS = 128, 512  # of 32 bits


class TensorMemory(Learned):
    """A view of tensor memory: its values, and which ``cells`` of the allocation they are."""

    said = "tensor_memory_descriptor"

    def __init__(
        self, cells: Cells, values: np.ndarray, at: np.ndarray, dtype: tl.dtype, layout: Any
    ) -> None:
        self.cells, self.values, self.at, self.dtype = cells, values, at, dtype
        self.layout = layout

    @property
    def region(self) -> Region:
        """Which part of the allocation this is."""
        return self.cells.region(self.at)

    @property
    def parts(self) -> tuple[Part, ...]:
        """What each CTA of the cluster has of it."""
        return parts_of(self.cells, self.at, self.region)

    @property
    def rank(self) -> int:
        """How many axes it has."""
        return self.values.ndim

    @property
    def shape(self) -> Shape:
        """The lengths of its axes."""
        return Shape(self.values.shape)

    @property
    def type(self) -> Type:
        """Its type."""
        made = Type(self.dtype, self.values.shape)
        made.layout = self.layout
        return made

    def _of(self, values: np.ndarray, at: np.ndarray) -> TensorMemory:
        return TensorMemory(self.cells, values, at, self.dtype, self.layout)

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

    def check(self) -> None:
        """Raise if it was copied from memory that was not to be read."""
        for region, why in self.cells.spoilt:
            if region.meets(self.region):
                raise why

    def load(self, layout: Any = None) -> Block:
        """Its values, in registers."""
        self.check()
        for cta, cells, region in self.parts:
            cells.reads(region, program().now.ctas[cta])
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
        for cta, cells, region in self.parts:
            who = program().now.ctas[cta]
            cells.writes(region, who, [])
            who.unfenced.pop()  # no fence orders it: the instruction that follows waits
        self.values[...] = value.data


def allocate(
    element_ty: tl.dtype, shape: Any, layout: Any = None, value: Any = None
) -> TensorMemory:
    """Allocate tensor memory."""
    sizes = sizes_of((shape,))
    size = int(np.prod(sizes))
    one = program()
    if getattr(layout, "two_ctas", False):
        if one.ctas % 2:
            raise MisuseError("a layout of two CTAs wants an even number of them in a cluster")
        one.pairs = True
    cells = room_for(one, f"tensor memory {{}} ({element_ty} {list(sizes)})", sizes, layout)
    values = np.zeros(sizes, KEPT[element_ty.name])
    if element_ty.is_floating():
        values[...] = np.nan
    made = layout if isinstance(layout, Layout) else Layout.like(layout)
    found = TensorMemory(cells, values, np.arange(size).reshape(sizes), element_ty, made)
    if value is not None:
        found.store(value)
    return found


def _cores() -> list[tuple[int, Partition, tuple[int, ...]]]:
    """The tensor cores that do what the partition asks now, and whose operands each reads."""
    one = program()
    found = []
    for cta, who, reads in partners(one.now, one.pairs):
        core = one.core_of(who)
        np.maximum(core.known, who.known, out=core.known)
        who.tick()
        core.tick()
        core.worked = core.clock
        found.append((cta, core, reads))
    return found


def _read(
    operand: Any, core: Partition, of: tuple[int, ...], late: bool = False
) -> RaceError | None:
    """A core reads the parts of an operand that these CTAs have; ``late``: what is wrong with that
    is said when somebody uses it."""
    if not isinstance(operand, Shared | TensorMemory):
        raise MisuseError(f"expected shared or tensor memory, got {type(operand).__name__}")
    if isinstance(operand, TensorMemory):
        operand.check()
    for cta, cells, region in operand.parts:
        if cta in of:
            why = cells.objection(region, core, engine=isinstance(operand, Shared))
            if why and late:
                return why
            if why:
                raise why
            cells.has_read(region, core, core.clock, here())
    return None


def _values(operand: Any) -> np.ndarray:
    if isinstance(operand, Shared):
        return decode(operand.raw, operand.dtype)
    values: np.ndarray = operand.values
    return values


def _write(to: TensorMemory, core: Partition, of: tuple[int, ...]) -> None:
    """A core writes the parts that these CTAs have."""
    to.cells.spoilt = [one for one in to.cells.spoilt if not one[0].meets(to.region)]
    for cta, cells, region in to.parts:
        if cta in of:
            cells.writes(region, core, [])
            core.unfenced.pop()


def _arrive(barriers: Any, preds: Any, descs: Any = ()) -> None:
    """Who made products lets barriers know, in every CTA that has operands of them."""
    wanted = [True] * len(barriers) if preds is None else list(preds)
    one = program()
    for barrier, pred in zip(barriers, wanted, strict=True):
        if not bool(pred):
            continue
        for cta, who, pair in list(partners(one.now, one.pairs)):
            core = one.core_of(who)
            # Operands of one CTA of a pair are of both.
            near = {cta, *pair}
            reached = {
                other
                for desc in descs
                if desc.cells.split is not None
                for each in near
                for other in desc.cells.split.group(each)
            }
            for other, told in enumerate(barrier_at(barrier).barriers()):
                if other in reached | near:
                    engines.knows(who, told)
                    told.arrive(core)


def _product(left: np.ndarray, right: np.ndarray, operands: Any, acc: Any, use_acc: Any) -> None:
    cores = _cores()
    for _, core, of in cores:
        for one in (*operands, *([acc] if bool(use_acc) else [])):
            _read(one, core, of)
    value = computed(np.matmul, left, right)
    if bool(use_acc):
        value = computed(np.add, value, acc.values)
    for _, core, of in cores:
        _write(acc, core, of)
    acc.values[...] = rounded(value, acc.dtype)
    if (log := program().log) is not None:
        log.multiplies(program().now, acc)


def _end(a: Any, b: Any, multicast: bool, mbarriers: Any, mbarrier_preds: Any) -> None:
    """Signal the barriers that a product names, and let others go on."""
    if mbarriers:
        descs = [one for one in (a, b) if isinstance(one, Shared)] if multicast else ()
        _arrive(mbarriers, mbarrier_preds, descs)
    program().let_others()


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
    if bool(pred):
        engines.must_be_alike(a, b)
        engines.must_fit(a.shape, b.shape, acc.shape)
        left, right = (np.asarray(_values(one), np.float32) for one in (a, b))
        _product(left, right, (a, b), acc, use_acc)
    _end(a, b, multicast, mbarriers, mbarrier_preds)


def _scaled(operand: Any, scales: TensorMemory, kind: Any, axis: int) -> np.ndarray:
    """Values of a block-scaled operand; ``axis`` is the one that is summed over."""
    values = widened(_values(operand), operand.dtype, str(getattr(kind, "value", kind)), axis)
    factors = factors_of(_values(scales), scales.dtype)
    return scaled_by(values, factors, axis)


def multiply_scaled(
    a: Any,
    b: Any,
    acc: TensorMemory,
    a_scale: TensorMemory,
    b_scale: TensorMemory,
    a_type: Any,
    b_type: Any,
    *,
    use_acc: Any = True,
    pred: Any = True,
    multicast: bool = False,
    mbarriers: Any = None,
    mbarrier_preds: Any = None,
) -> None:
    """acc = (a times its scales) @ (b times its scales), or more of it."""
    if bool(pred):
        for name, one in (("a_scale", a_scale), ("b_scale", b_scale)):
            if not isinstance(one, TensorMemory):
                raise MisuseError(f"expected {name} in tensor memory, got {type(one).__name__}")
        left, right = _scaled(a, a_scale, a_type, 1), _scaled(b, b_scale, b_type, 0)
        engines.must_fit(left.shape, right.shape, acc.shape)
        _product(left, right, (a, b, a_scale, b_scale), acc, use_acc)
    _end(a, b, multicast, mbarriers, mbarrier_preds)


def copy(src: Shared, dst: TensorMemory) -> None:
    """Copy shared memory to tensor memory; done when a barrier says so."""
    if src.numel != dst.values.size:
        raise MisuseError(f"a copy of {list(src.shape)} to {list(dst.shape)}")
    if not isinstance(src, Shared) or not isinstance(dst, TensorMemory):
        raise MisuseError(f"a copy of {type(src).__name__} to {type(dst).__name__}")
    for _, core, of in _cores():
        spoilt = _read(src, core, of, late=True)
        _write(dst, core, of)
        if spoilt is not None:
            dst.cells.spoilt.append((dst.region, spoilt))
    dst.values[...] = _values(src).reshape(dst.values.shape)
    program().let_others()


def commit(barrier: Shared, pred: Any = True, descs: Any = ()) -> None:
    """Arrive at a barrier when all that the tensor core was asked for before is done."""
    if bool(pred):
        _arrive([barrier], None, descs)
        program().let_others()


def barrier_count(smems: Any, multicast: bool) -> int:
    """How many CTAs arrive at a barrier of products that read this memory."""
    splits = [one.cells.split for one in smems if one.cells.split is not None]
    if not splits or not multicast:
        return 1
    return sum(1 << one.free.bit_count() for one in splits) - (len(splits) - 1)
