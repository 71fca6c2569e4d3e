"""Single integers are computed as Python's: the result is that of an array of one element."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
import triton.language as tl

from warpwatch.simulator.values.blocks import Block
from warpwatch.simulator.values.elements import INTEGERS, KEPT, computed, encode, quiet
from warpwatch.simulator.words import standard

OPERATORS: tuple[Any, ...] = (
    operator.add,
    operator.sub,
    operator.mul,
    operator.floordiv,
    operator.mod,
    operator.and_,
    operator.or_,
    operator.xor,
    operator.eq,
    operator.ne,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
    standard.maximum,
    standard.minimum,
)
KINDS = (tl.int8, tl.uint8, tl.int32, tl.uint32, tl.int64, tl.uint64)


def numbers(kind: tl.dtype) -> list[int]:
    _, low, high = INTEGERS[kind.name]
    return sorted({low, low + 1, max(low, -7), max(low, -1), 0, 1, 3, 7, high - 1, high})


def of(value: Any, kind: tl.dtype, *shape: int) -> Block:
    return Block(np.full(shape, value, KEPT[kind.name]), kind)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("function", OPERATORS, ids=lambda one: str(one.__name__))
def test_a_number_is_computed_as_an_array_is(function: Any, kind: tl.dtype) -> None:
    for a in numbers(kind):
        for b in numbers(kind):
            many = function(of(a, kind, 1), of(b, kind, 1))
            for one in (function(of(a, kind), of(b, kind)), function(of(a, kind), b)):
                assert one.shape == () and one.dtype == many.dtype, (a, b)
                assert one.data.dtype == many.data.dtype, (a, b)
                assert one.data.item() == many.data.item(), (a, b)


def test_a_number_on_the_left_is_the_first_operand() -> None:
    seven = of(7, tl.int32)
    assert int(-30 - seven) == -37
    assert (int(-30 // seven), int(-30 % seven)) == (-4, -2)


def test_a_number_that_a_type_does_not_hold_is_wider() -> None:
    assert (of(1, tl.int32) + 2**40).dtype == tl.int64
    assert (of(1, tl.int8) + 200).dtype == tl.int32


def test_a_number_meets_a_block_of_its_type() -> None:
    found = of(3, tl.int32) + of(4, tl.int32, 2, 2)
    assert found.shape == (2, 2) and (found.data == 7).all()


@pytest.mark.parametrize("quietly", [False, True])
def test_nothing_is_warned_of(recwarn: pytest.WarningsRecorder, quietly: bool) -> None:
    zero, one = np.zeros(1, np.float32), np.ones(1, np.float32)
    if quietly:
        with quiet():
            found = computed(np.divide, one, zero)
    else:
        found = computed(np.divide, one, zero)
    assert np.isinf(found).all() and not recwarn.list
    assert np.geterr()["divide"] == "warn"


def test_bf16_is_rounded_to_the_nearest_even() -> None:
    values = np.asarray([1.0, 1.00390625, 1.01171875, np.inf, -np.inf, np.nan, 3.4e38], np.float32)
    bits = encode(values, tl.bfloat16)
    assert [hex(one) for one in bits] == [
        "0x3f80", "0x3f80", "0x3f82", "0x7f80", "0xff80", "0x7fff", "0x7f80",
    ]  # fmt: skip
