"""What operators of blocks compute, with arrays and, faster, with single integers.

Most of what a kernel computes is one number: where a stage or a tile begins. Python's integers take
a tenth of the time of numpy's arrays without an axis.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from warpwatch.simulator.errors import MisuseError


def plus(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a + b."""
    # numpy adds truth values to truth values; integers of one bit have no sum anyone wants.
    if a.dtype == np.bool_:
        raise MisuseError("expected integers to add, got truth values")
    return a + b


def cut_quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Cut towards zero, as the hardware does; Python's goes down."""
    if a.dtype.kind == "f":
        raise MisuseError("// wants integers")
    quotient = np.asarray(np.floor_divide(a, b))
    uneven = (quotient * b != a) & ((a < 0) != (b < 0)) & (b != 0)
    # By zero, hardware traps not: it has all bits set.
    return np.where(b == 0, ~np.zeros_like(quotient), quotient + uneven.astype(quotient.dtype))


def rest(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What a quotient that is cut towards zero leaves."""
    if a.dtype.kind == "f":
        return np.asarray(np.fmod(a, b))
    return np.where(b == 0, a, np.fmod(a, b))  # by zero nothing is taken away


def _one_quotient(a: int, b: int) -> int:
    return a // b if (a < 0) == (b < 0) else -(-a // b)


def _one_rest(a: int, b: int) -> int:
    return a - b * _one_quotient(a, b)


# What a function computes of single integers, where it raises nothing and its type holds the
# result.
OF_ONE: dict[Any, Callable[[int, int], int]] = {
    plus: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.bitwise_and: operator.and_,
    np.bitwise_or: operator.or_,
    np.bitwise_xor: operator.xor,
    np.fmax: max,
    np.fmin: min,
    cut_quotient: _one_quotient,
    rest: _one_rest,
}
COMPARES_ONE: dict[Any, Callable[[int, int], bool]] = {
    np.equal: operator.eq,
    np.not_equal: operator.ne,
    np.less: operator.lt,
    np.less_equal: operator.le,
    np.greater: operator.gt,
    np.greater_equal: operator.ge,
}
