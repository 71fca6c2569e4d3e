"""Boxes of a tensor as views of its memory: no address of an element is computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import triton.language as tl

from warpwatch.simulator.values.elements import STORED, computed, decode, encode


class Memory(Protocol):
    """A tensor's memory, from the address ``begin`` on."""

    begin: int
    bytes: np.ndarray
    written: np.ndarray | None  # which bytes somebody wrote, where that is known


@dataclass(frozen=True, slots=True)
class Window:
    """Part of a box that is in memory: ``parts`` of the box's ``shape``, from the byte ``first`` of
    a tensor's ``memory`` on, ``steps`` bytes apart."""

    memory: Memory
    first: int
    steps: tuple[int, ...]
    parts: tuple[slice, ...]
    shape: tuple[int, ...]

    @property
    def lengths(self) -> tuple[int, ...]:
        """How much of each axis there is."""
        return tuple(one.stop - one.start for one in self.parts)

    @property
    def whole(self) -> bool:
        """Whether all of the box is there."""
        return self.lengths == self.shape

    @property
    def apart(self) -> bool:
        """Whether no element is there twice."""
        end = 0
        for step, length in sorted(zip(self.steps, self.lengths, strict=True)):
            if step <= end and length > 1:
                return False
            end += step * (length - 1)
        return True

    def elements(self, kind: np.dtype[Any]) -> np.ndarray:
        """They, in the storage itself."""
        return np.ndarray(self.lengths, kind, self.memory.bytes, self.first, self.steps)

    def put(self, raw: np.ndarray, dtype: tl.dtype, adds: bool) -> None:
        """Write, or add, what is there of ``raw``."""
        elements, new = self.elements(np.dtype(STORED[dtype.name])), raw[self.parts]
        if (written := self.memory.written) is not None:
            bytes_of = (*self.lengths, elements.itemsize), (*self.steps, 1)
            np.ndarray(bytes_of[0], np.bool_, written, self.first, bytes_of[1])[...] = True
        if adds:
            new = encode(computed(np.add, decode(elements, dtype), decode(new, dtype)), dtype)
        elements[...] = new


def window_of(
    memory: Memory, first: int, size: int, at: Any, axes: tuple[list[int], list[int], list[int]]
) -> Window | None:
    """What there is of a box in memory.

    Args:
        memory: The tensor's.
        first: Where the tensor begins, an address.
        size: The bytes of an element.
        at: Where the box begins in the tensor.
        axes: The axes' lengths and strides, and the box's.

    Returns:
        It; None if some of it lies outside the memory, or if anything of it is wrong.
    """
    places, parts, reach = [int(one) for one in at], [], size
    if any(len(one) != len(places) for one in axes):
        return None
    for place, length, stride, most in zip(places, *axes, strict=True):
        low = max(0, -place)
        high = max(low, min(most, length - place))
        if stride < 0 or not -(2**31) <= place < 2**31:
            return None
        first += (place + low) * stride * size
        reach += (high - low - 1) * stride * size
        parts.append(slice(low, high))
    steps = tuple(stride * size for stride in axes[1])
    if any(one.start == one.stop for one in parts):
        return Window(memory, 0, steps, tuple(parts), tuple(axes[2]))
    first = first % 2**64 - memory.begin
    if first < 0 or first + reach > memory.bytes.size or first % size:
        return None
    return Window(memory, first, steps, tuple(parts), tuple(axes[2]))
