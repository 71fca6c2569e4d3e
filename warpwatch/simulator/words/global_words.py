"""Words that reach global memory: loads, stores, atomics and block pointers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import triton.language as tl

from warpwatch.simulator.errors import MisuseError
from warpwatch.simulator.machine.engines import program
from warpwatch.simulator.machine.global_memory import Descriptor, Pointer
from warpwatch.simulator.values.blocks import Block, block_of
from warpwatch.simulator.values.layouts import sizes_of


@dataclass(frozen=True)
class BlockPointer:
    """A window of a tensor, as plain Triton's block pointers describe it."""

    base: Pointer
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offsets: tuple[int, ...]
    block_shape: tuple[int, ...]

    def window(self, checked: Any) -> tuple[Pointer, np.ndarray]:
        """Its addresses, and which of them are inside along the axes that are ``checked``."""
        rank = len(self.shape)
        at: Any = np.zeros((1,) * rank, np.int64)
        inside = np.ones((1,) * rank, np.bool_)
        for axis in range(rank):
            along = self.offsets[axis] + np.arange(self.block_shape[axis], dtype=np.int64)
            form = [-1 if axis == one else 1 for one in range(rank)]
            at = at + (along * self.strides[axis]).reshape(form)
            if axis in checked:
                inside = inside & ((along >= 0) & (along < self.shape[axis])).reshape(form)
        pointer = self.base + Block(at, tl.int64)
        return pointer, np.broadcast_to(inside, pointer.shape)


def make_block_ptr(
    base: Pointer, shape: Any, strides: Any, offsets: Any, block_shape: Any, order: Any
) -> BlockPointer:
    """A block pointer."""
    given = (shape, strides, offsets, block_shape)
    return BlockPointer(base, *(sizes_of((tuple(one),)) for one in given))


def advance(pointer: BlockPointer, offsets: Any) -> BlockPointer:
    """The window, further on."""
    moved = tuple(a + b for a, b in zip(pointer.offsets, sizes_of((tuple(offsets),)), strict=True))
    return replace(pointer, offsets=moved)


def load(
    pointer: Any,
    mask: Any = None,
    other: Any = None,
    boundary_check: Any = (),
    padding_option: str = "",
    **hints: Any,
) -> Block:
    """Load."""
    if isinstance(pointer, BlockPointer):
        at, inside = pointer.window(boundary_check)
        filled = float("nan") if padding_option == "nan" else 0
        return at.load(Block(inside, tl.int1), filled)
    if not isinstance(pointer, Pointer):
        raise MisuseError(f"expected pointers to load, got {type(pointer).__name__}")
    found = pointer.load(mask, other)
    if not pointer.shape:  # a flag, maybe
        program().looked_at_memory(int(pointer.at), found.data.item(), atomic=False)
    return found


def store(
    pointer: Any, value: Any, mask: Any = None, boundary_check: Any = (), **hints: Any
) -> None:
    """Store."""
    if isinstance(pointer, BlockPointer):
        at, inside = pointer.window(boundary_check)
        at.store(value, Block(inside, tl.int1))
        return
    if not isinstance(pointer, Pointer):
        raise MisuseError(f"expected pointers to store to, got {type(pointer).__name__}")
    pointer.store(value, mask)
    program().changed_memory(flag=not pointer.shape)


def _after(pointer: Pointer, found: Block, differs: bool) -> None:
    """Others may go on behind an atomic; one that changes nothing may be waiting."""
    if differs:
        program().changed_memory()
    elif pointer.at.size:
        first = int(pointer.at.reshape(-1)[0])
        program().looked_at_memory(first, found.data.tobytes(), atomic=True)


def _atomic(change: Callable[[Any, Any], Any]) -> Callable[..., Block]:
    def of(
        pointer: Pointer, val: Any, mask: Any = None, sem: Any = None, scope: Any = None, **_: Any
    ) -> Block:
        found, differs = pointer.update(val, mask, change)
        _after(pointer, found, differs)
        return found

    return of


def atomic_cas(
    pointer: Pointer, cmp: Any, val: Any, sem: Any = None, scope: Any = None, **_: Any
) -> Block:
    """Store ``val`` where ``cmp`` is; what was there."""
    wanted = block_of(cmp, pointer.element_ty).data
    found, differs = pointer.update(val, None, lambda old, new: np.where(old == wanted, new, old))
    _after(pointer, found, differs)
    return found


def _added(old: Any, new: Any) -> Any:
    return old + new


def make_tensor_descriptor(
    base: Pointer,
    shape: Any,
    strides: Any,
    block_shape: Any,
    layout: Any = None,
    padding_option: str = "zero",
) -> Descriptor:
    """A tensor, as a kernel describes it to the copy engine."""
    if padding_option != "zero":
        raise MisuseError(f"padding {padding_option} is not known")
    return Descriptor(base, shape, strides, block_shape)


REACHES: dict[str, Any] = {
    "load": load,
    "store": store,
    "make_block_ptr": make_block_ptr,
    "advance": advance,
    "make_tensor_descriptor": make_tensor_descriptor,
    "load_tensor_descriptor": lambda desc, at: desc.load(at),
    "store_tensor_descriptor": lambda desc, at, value: desc.store(at, value),
    "atomic_add": _atomic(_added),
    "atomic_max": _atomic(np.maximum),
    "atomic_min": _atomic(np.minimum),
    "atomic_and": _atomic(np.bitwise_and),
    "atomic_or": _atomic(np.bitwise_or),
    "atomic_xor": _atomic(np.bitwise_xor),
    "atomic_xchg": _atomic(lambda old, new: new),
    "atomic_cas": atomic_cas,
}
