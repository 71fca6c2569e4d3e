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
from warpwatch.simulator.values.arithmetic import (
    COMPARES_ONE,
    OF_ONE,
    cut_quotient,
    plus,
    rest,
)
from warpwatch.simulator.values.elements import (
    INTEGERS,
    KEPT,
    STORED,
    computed,
    decode,
    encode,
    holds,
    meeting,
    rounded,
)
from warpwatch.simulator.values.layouts import Shape, Type, sizes_of

_NUMBERS = (bool, int, float, np.generic)
_OPERANDS = (bool, int, float)


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
    if isinstance(value, _NUMBERS):
        return of_number(value.item() if isinstance(value, np.generic) else value, beside)
    raise MisuseError(f"expected a block or a number, got {type(value).__name__}")


class Block(Learned):
    """Values (any shape) of one ``dtype``; of no axis it is a scalar."""

    __slots__ = ("data", "dtype")
    __hash__ = None  # type: ignore[assignment]  # == compares element by element

    def __init__(self, data: np.ndarray, dtype: tl.dtype) -> None:
        self.data = data if type(data) is np.ndarray else np.asarray(data)
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
        data = self.data
        if data.size != 1:
            raise MisuseError(f"expected a scalar, got a block of {self.shape}")
        return data.item()

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

    def _one(self, other: Any, function: Any, of: Any) -> Any:
        """What ``function`` makes of two single integers, as Python's; None if that takes more."""
        name = self.dtype.name
        if name not in INTEGERS or function not in of or self.data.ndim:
            return None
        kept, low, high = INTEGERS[name]
        if type(other) is int:
            b = other
        elif isinstance(other, Block) and other.dtype.name == name and not other.data.ndim:
            if other.data.dtype is not kept:
                return None
            b = other.data.item()
        else:
            return None
        if self.data.dtype is not kept or not low <= b <= high:
            return None
        return of[function], self.data.item(), b

    def _with(self, other: Any, function: Any, divides: bool = False, swap: bool = False) -> Block:
        one = self._one(other, function, OF_ONE)
        if one is not None:
            plain, a, b = one
            if swap:
                a, b = b, a
            kept, low, high = INTEGERS[self.dtype.name]
            if b or (function is not cut_quotient and function is not rest):
                value = plain(a, b)
                if low <= value <= high:
                    return Block(np.array(value, kept), self.dtype)
        if not isinstance(other, Block) and not isinstance(other, _OPERANDS):
            return NotImplemented
        other = block_of(other, self.dtype)
        kind = meeting(self.dtype, other.dtype, divides)
        left, right = rounded(self.data, kind), rounded(other.data, kind)
        found = computed(function, right, left) if swap else computed(function, left, right)
        return Block(rounded(found, kind), kind)

    def _compared(self, other: Any, function: Any) -> Block:
        if other is None:
            return NotImplemented
        one = self._one(other, function, COMPARES_ONE)
        if one is not None:
            return Block(np.array(one[0](one[1], one[2])), tl.int1)
        other = block_of(other, self.dtype)
        kind = meeting(self.dtype, other.dtype)
        found = computed(function, rounded(self.data, kind), rounded(other.data, kind))
        return Block(found, tl.int1)

    def __add__(self, other: Any) -> Block:
        return self._with(other, plus)

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
        return self._with(other, cut_quotient)

    def __rfloordiv__(self, other: Any) -> Block:
        return self._with(other, cut_quotient, swap=True)

    def __mod__(self, other: Any) -> Block:
        return self._with(other, rest)

    def __rmod__(self, other: Any) -> Block:
        return self._with(other, rest, swap=True)

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


def _quotient(a: Block, b: Block) -> Block:
    kind = meeting(a.dtype, b.dtype, divides=True)
    kind = kind if kind.is_floating() else tl.float32
    found = computed(np.true_divide, rounded(a.data, kind), rounded(b.data, kind))
    return Block(rounded(found, kind), kind)
