"""Scalar values of a kernel, for all programs at once: pointers into known tables, arithmetic.

Integers behave as in the compiler's dialect (division goes towards zero). A value is a number, an
array over programs, a :class:`Pointer`, or ``None`` where nothing is known of it. An array is
masked for the programs that it is not known for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from warpwatch.instruments.compiled.formats.recording import DescriptorArgument, TensorArgument

Value = Any
_ma: Any = np.ma  # not typed


@dataclass(frozen=True)
class Pointer:
    argument: TensorArgument
    offset: Value


def argument(value: Any) -> Value:
    if isinstance(value, TensorArgument):
        return Pointer(value, 0)
    if isinstance(value, DescriptorArgument):
        return None
    return int(value) if isinstance(value, bool | int) else None


def unknown(*values: Value) -> bool:
    return any(value is None or isinstance(value, Pointer) for value in values)


def is_known(value: Value, programs: np.ndarray) -> bool:
    """Whether a value is known for every one of ``programs``."""
    return not unknown(value) and not bool((_masked(value) & programs).any())


def _masked(value: Value) -> np.ndarray:
    masked: np.ndarray = _ma.getmaskarray(_ma.asarray(value))
    return masked


def numbers(value: Value, otherwise: int) -> np.ndarray:
    """A known value as an array, ``otherwise`` where it is masked."""
    filled: np.ndarray = _ma.filled(_ma.asarray(value), otherwise)
    return filled


def may_be(truth: bool, value: Value, programs: np.ndarray) -> np.ndarray:
    """The programs among ``programs`` where a condition may be ``truth``: also where it is not
    known."""
    return programs if unknown(value) else programs & ((numbers(value, truth) != 0) == truth)


def where(mask: Value, new: Value, old: Value) -> Value:
    if unknown(mask, new, old):
        return None
    if any(_ma.isMaskedArray(one) for one in (mask, new, old)):
        return _ma.where(mask, new, old)
    return np.where(mask, new, old)


def load(pointer: Value, mask: Value = 1, other: Value = None) -> Value:
    """What a scalar load finds: memory by its own offset, ``other`` where ``mask`` is 0. Beyond the
    table, where a masked load names no other value, and where memory was never written, nothing is
    known."""
    if not isinstance(pointer, Pointer) or pointer.argument.values is None:
        return None
    if unknown(pointer.offset, mask):
        return None
    table = pointer.argument.values
    offset = _ma.asarray(pointer.offset)
    inside = (offset >= 0) & (offset < table.size)
    places = np.where(_ma.filled(inside, False), _ma.filled(offset, 0), 0)
    found = _ma.asarray(table[places]).astype(np.int64)
    missing = _masked(found) | ~_ma.filled(inside, False)
    wanted = _ma.asarray(mask) != 0
    instead = _ma.asarray(0 if unknown(other) else other)
    lost = _masked(instead) | unknown(other)
    taken = _ma.filled(wanted, False)
    values = np.where(taken, _ma.filled(found, 0), _ma.filled(instead, 0))
    unclear = np.where(taken, missing, lost) | _masked(wanted)
    if not unclear.any():
        return values
    return None if unclear.all() else _ma.masked_array(values, unclear)


def retyped(pointer: Pointer, text: str) -> Value:
    """A pointer to elements of another type: the same table where they are as wide."""
    wanted = re.findall(r"!tt\.ptr<[a-z]+(\d+)", text)
    table = pointer.argument.values
    same = table is not None and wanted and max(8, int(wanted[-1])) == 8 * table.itemsize
    return pointer if same else None


def truncated(value: Value, text: str) -> Value:
    """``arith.trunci``: the low bits, signed."""
    match = re.search(r" to i(\d+)", text)
    bits = int(match.group(1)) if match else 64
    if bits == 1:
        return value & 1
    half = 1 << (bits - 1)
    return value if bits >= 64 else ((value + half) & (2 * half - 1)) - half


def _divide(a: Value, b: Value) -> Value:
    """As C does: towards zero."""
    b = where(np.equal(b, 0), 1, b)
    quotient = np.abs(a) // np.abs(b)
    return where(np.less(a, 0) != np.less(b, 0), -quotient, quotient)


def _remainder(a: Value, b: Value) -> Value:
    return a - _divide(a, b) * b


def _same(a: Value) -> Value:
    return a


ARITHMETIC: dict[str, Callable[..., Value]] = {
    "arith.addi": lambda a, b: a + b,
    "arith.subi": lambda a, b: a - b,
    "arith.muli": lambda a, b: a * b,
    "arith.divsi": _divide,
    "arith.divui": _divide,
    "arith.remsi": _remainder,
    "arith.remui": _remainder,
    "arith.ceildivsi": lambda a, b: -((-a) // np.maximum(b, 1)),
    "arith.floordivsi": lambda a, b: a // np.maximum(b, 1),
    "arith.minsi": np.minimum,
    "arith.minui": np.minimum,
    "arith.maxsi": np.maximum,
    "arith.maxui": np.maximum,
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
    "arith.shli": np.left_shift,
    "arith.shrsi": np.right_shift,
    "arith.shrui": np.right_shift,
    "arith.extsi": _same,
    "arith.extui": _same,
    "arith.index_cast": _same,
    "math.absi": np.abs,
}
COMPARISONS: dict[str, Callable[..., Value]] = {
    "eq": lambda a, b: np.equal(a, b).astype(np.int64),
    "ne": lambda a, b: np.not_equal(a, b).astype(np.int64),
    **{f"{sign}lt": lambda a, b: np.less(a, b).astype(np.int64) for sign in "su"},
    **{f"{sign}le": lambda a, b: np.less_equal(a, b).astype(np.int64) for sign in "su"},
    **{f"{sign}gt": lambda a, b: np.greater(a, b).astype(np.int64) for sign in "su"},
    **{f"{sign}ge": lambda a, b: np.greater_equal(a, b).astype(np.int64) for sign in "su"},
}
