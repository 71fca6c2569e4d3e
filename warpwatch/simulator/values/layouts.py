"""Shapes, types and layouts, as kernels ask for them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import triton.language as tl

from warpwatch.simulator.errors import Learned
from warpwatch.simulator.values.elements import STORED

_SPREAD = ("cga_layout", "cta_split_num", "two_ctas")


def sizes_of(given: tuple[Any, ...]) -> tuple[int, ...]:
    """Numbers that were given one by one, or as one list."""
    if len(given) == 1 and isinstance(given[0], tuple | list):
        given = tuple(given[0])
    return tuple(int(one) for one in given)


class Shape(tuple[int, ...]):
    """Lengths of axes. Triton adds lists to them."""

    __slots__ = ()

    def __add__(self, other: Any) -> Shape:
        return Shape((*self, *other))

    def __radd__(self, other: Any) -> Shape:
        return Shape((*other, *self))


class Layout(Learned):
    """Any layout: nothing here depends on what it says but how a cluster shares a tensor."""

    said = "layout"
    _one: Layout | None = None
    cga_layout: tuple[tuple[int, ...], ...] = ()
    block: tuple[int, ...] = ()
    cta_split_num: tuple[int, ...] | None = None
    two_ctas = False

    def __new__(cls, *given: Any, **named: Any) -> Layout:
        spread = {name: named[name] for name in _SPREAD if named.get(name)}
        if not spread and cls is Layout:
            if Layout._one is None:
                Layout._one = super().__new__(cls)
            return Layout._one
        made = super().__new__(cls)
        block = named.get("block", given[0] if given else ())
        if isinstance(block, list | tuple):
            made.block = sizes_of((tuple(block),))
        for name, value in spread.items():
            setattr(made, name, value)
        return made

    @staticmethod
    def like(other: Any) -> Layout:
        """What stands for a layout that host code made."""
        return Layout(**{name: getattr(other, name, None) for name in _SPREAD})

    @staticmethod
    def get_default_for(*given: Any, **named: Any) -> Layout:
        """A layout that suits a shape."""
        return Layout(**named)

    @staticmethod
    def multicta(num_ctas: int, two_cta: bool = False) -> Layout:
        """The layout of barriers, one for each CTA or for two of them."""
        bits = int(num_ctas).bit_length() - 1 - bool(two_cta)
        bases = [(0,)] * bool(two_cta) + [(1 << bit,) for bit in range(bits)]
        return Layout(cga_layout=tuple(bases))

    @property
    def parent(self) -> Layout:
        """The layout that it is a part of."""
        return self


ANY_LAYOUT = Layout()


class Type(Learned):
    """What kernels ask of a value's type."""

    said = "type"
    layout = ANY_LAYOUT
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, dtype: tl.dtype, shape: tuple[int, ...]) -> None:
        self.element_ty = self.scalar = dtype
        self.shape = Shape(shape)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Type):
            return False
        return self.element_ty == other.element_ty and self.shape == other.shape

    @property
    def numel(self) -> int:
        """How many values there are."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """What they take in memory."""
        return self.numel * np.dtype(STORED[self.element_ty.name]).itemsize
