"""Blocks of values as Gluon's kernels hold them in registers, on numpy.

A block has the arithmetic of the card's: types meet as Triton's do, integers wrap, quotients of
integers are cut towards zero, and what is narrower than fp32 is rounded after every operation.
bf16 and fp8 are kept as the fp32 values they stand for. Layouts are not known here: compiling
checks them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl

from warpwatch.simulator.errors import Learned, MisuseError, UnknownWordError
from warpwatch.simulator.values.elements import (
    KEPT,
    STORED,
    decode,
    encode,
    holds,
    meeting,
    rounded,
)
from warpwatch.simulator.values.layouts import Shape, Type, sizes_of


def of_number(value: Any, beside: tl.dtype | None = None) -> Block:
    """A number of Python, alone or where it meets a block of type ``beside``."""
    if beside is not None and beside.is_floating():
        return Block(rounded(np.asarray(value, np.float64), beside), beside)
    if isinstance(value, bool | np.bool_):
        return Block(np.asarray(value), tl.int1)
    if isinstance(value, float):
        return Block(np.asarray(value, np.float32), tl.float32)
    if beside is not None and beside.name != "int1" and holds(beside, value):
        return Block(np.asarray(value, KEPT[beside.name]), beside)
    kind = tl.int32 if -(2**31) <= value < 2**31 else tl.int64
    return Block(np.asarray(value, KEPT[kind.name]), kind)


def block_of(value: Any, beside: tl.dtype | None = None) -> Block:
    if isinstance(value, Block):
        return value
    if isinstance(value, bool | int | float | np.generic):
        return of_number(value.item() if isinstance(value, np.generic) else value, beside)
    raise MisuseError(f"expected a block or a number, got {type(value).__name__}")


class Block(Learned):
    """Values (any shape) of one ``dtype``; of no axis it is a scalar."""

    __slots__ = ("data", "dtype")
    __hash__ = None  # type: ignore[assignment]  # == compares element by element

    def __init__(self, data: np.ndarray, dtype: tl.dtype) -> None:
        self.data = np.asarray(data)
        self.dtype = dtype

    @property
    def shape(self) -> Shape:
        return Shape(self.data.shape)

    @property
    def numel(self) -> int:
        return self.data.size

    @property
    def type(self) -> Type:
        return Type(self.dtype, self.shape)

    def __repr__(self) -> str:
        return f"Block({self.dtype}, {self.data.tolist() if self.data.size < 9 else self.shape})"

    # Scalars steer Python's own branches and loops.
    def __bool__(self) -> bool:
        return bool(self._only())

    def __index__(self) -> int:
        if self.dtype.is_floating():
            raise MisuseError(f"expected an integer, got {self}")
        return int(self._only())

    __int__ = __index__

    def _only(self) -> Any:
        if self.data.size != 1:
            raise MisuseError(f"expected a scalar, got a block of {self.shape}")
        return self.data.reshape(-1)[0]

    def to(
        self, dtype: tl.dtype, fp_downcast_rounding: None = None, bitcast: bool = False
    ) -> Block:
        if not isinstance(dtype, tl.dtype):
            raise UnknownWordError("a pointer made of an integer")
        if bitcast:
            raw = np.ascontiguousarray(encode(self.data, self.dtype))
            return Block(decode(raw.view(STORED[dtype.name]).reshape(self.shape), dtype), dtype)
        if dtype == tl.int1:
            return Block(self.data != 0, dtype)
        if dtype.is_floating() or not self.dtype.is_floating():
            return Block(rounded(self.data, dtype), dtype)
        # Of floating point to integers: cut towards zero, at most what the type holds, NaN is 0.
        limits = np.iinfo(KEPT[dtype.name])
        wide = np.nan_to_num(np.trunc(self.data.astype(np.float64)), nan=0.0)
        inside = np.clip(wide, float(limits.min), float(limits.max))
        cut = np.where(inside >= float(limits.max), limits.max, inside.astype(np.int64))
        return Block(cut.astype(KEPT[dtype.name]), dtype)

    def reshape(self, *shape: Any) -> Block:
        return Block(self.data.reshape(sizes_of(shape)), self.dtype)

    def permute(self, *order: Any) -> Block:
        return Block(self.data.transpose(sizes_of(order)), self.dtype)

    def trans(self) -> Block:
        return Block(self.data.T, self.dtype)

    T = property(trans)

    def split(self) -> tuple[Block, Block]:
        if self.shape[-1:] != (2,):
            raise MisuseError(f"split wants a last axis of 2, got {self.shape}")
        return Block(self.data[..., 0], self.dtype), Block(self.data[..., 1], self.dtype)

    def broadcast_to(self, *shape: Any) -> Block:
        return Block(np.broadcast_to(self.data, sizes_of(shape)), self.dtype)

    def expand_dims(self, axis: int) -> Block:
        return Block(np.expand_dims(self.data, axis), self.dtype)

    def __getitem__(self, at: Any) -> Block:
        at = at if isinstance(at, tuple) else (at,)
        if any(not (one is None or one == slice(None)) for one in at):
            raise MisuseError(f"blocks take None and : as an index, got {at}")
        return Block(self.data[at], self.dtype)

    def _with(self, other: Any, function: Any, divides: bool = False, swap: bool = False) -> Block:
        if not isinstance(other, Block | bool | int | float):
            return NotImplemented
        other = block_of(other, self.dtype)
        kind = meeting(self.dtype, other.dtype, divides)
        a, b = rounded(self.data, kind), rounded(other.data, kind)
        with np.errstate(all="ignore"):
            found = function(b, a) if swap else function(a, b)
        return Block(rounded(found, kind), kind)

    def _compared(self, other: Any, function: Any) -> Block:
        if other is None:
            return NotImplemented
        other = block_of(other, self.dtype)
        kind = meeting(self.dtype, other.dtype)
        with np.errstate(invalid="ignore"):
            return Block(function(rounded(self.data, kind), rounded(other.data, kind)), tl.int1)

    def __add__(self, other: Any) -> Block:
        return self._with(other, _plus)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Block:
        return self._with(other, np.subtract)

    def __rsub__(self, other: Any) -> Block:
        return self._with(other, np.subtract, swap=True)

    def __mul__(self, other: Any) -> Block:
        return self._with(other, np.multiply)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Block:
        return _quotient(self, block_of(other, self.dtype))

    def __rtruediv__(self, other: Any) -> Block:
        return _quotient(block_of(other, self.dtype), self)

    def __floordiv__(self, other: Any) -> Block:
        return self._with(other, _cut_quotient)

    def __rfloordiv__(self, other: Any) -> Block:
        return self._with(other, _cut_quotient, swap=True)

    def __mod__(self, other: Any) -> Block:
        return self._with(other, _rest)

    def __rmod__(self, other: Any) -> Block:
        return self._with(other, _rest, swap=True)

    def __and__(self, other: Any) -> Block:
        return self._with(other, np.bitwise_and)

    __rand__ = __and__

    def __or__(self, other: Any) -> Block:
        return self._with(other, np.bitwise_or)

    __ror__ = __or__

    def __xor__(self, other: Any) -> Block:
        return self._with(other, np.bitwise_xor)

    __rxor__ = __xor__

    def __lshift__(self, other: Any) -> Block:
        return self._with(other, np.left_shift)

    def __rlshift__(self, other: Any) -> Block:
        return self._with(other, np.left_shift, swap=True)

    def __rshift__(self, other: Any) -> Block:
        return self._with(other, np.right_shift)

    def __neg__(self) -> Block:
        return Block(-self.data, self.dtype)

    def __invert__(self) -> Block:
        return Block(~self.data, self.dtype)

    def __abs__(self) -> Block:
        return Block(np.abs(self.data), self.dtype)

    def __eq__(self, other: object) -> Any:
        return self._compared(other, np.equal)

    def __ne__(self, other: object) -> Any:
        return self._compared(other, np.not_equal)

    def __lt__(self, other: Any) -> Block:
        return self._compared(other, np.less)

    def __le__(self, other: Any) -> Block:
        return self._compared(other, np.less_equal)

    def __gt__(self, other: Any) -> Block:
        return self._compared(other, np.greater)

    def __ge__(self, other: Any) -> Block:
        return self._compared(other, np.greater_equal)


def _plus(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    # numpy adds truth values to truth values; integers of one bit have no sum anyone wants.
    if a.dtype == np.bool_:
        raise MisuseError("expected integers to add, got truth values")
    return a + b


def _quotient(a: Block, b: Block) -> Block:
    kind = meeting(a.dtype, b.dtype, divides=True)
    kind = kind if kind.is_floating() else tl.float32
    with np.errstate(all="ignore"):
        return Block(rounded(rounded(a.data, kind) / rounded(b.data, kind), kind), kind)


def _cut_quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Cut towards zero, as the hardware does; Python's goes down."""
    if a.dtype.kind == "f":
        raise MisuseError("// wants integers")
    quotient = np.asarray(np.floor_divide(a, b))
    uneven = (quotient * b != a) & ((a < 0) != (b < 0)) & (b != 0)
    # By zero, hardware traps not: it has all bits set.
    return np.where(b == 0, ~np.zeros_like(quotient), quotient + uneven.astype(quotient.dtype))


def _rest(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind == "f":
        return np.asarray(np.fmod(a, b))
    return np.where(b == 0, a, np.fmod(a, b))  # by zero nothing is taken away
