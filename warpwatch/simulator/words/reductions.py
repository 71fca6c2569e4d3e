"""Words that combine the values of a block along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl

from warpwatch.simulator.errors import MisuseError
from warpwatch.simulator.values.arithmetic import plus
from warpwatch.simulator.values.blocks import Block
from warpwatch.simulator.values.elements import computed, rounded


def extreme_of(at_least: bool, propagate_nan: Any) -> Any:
    """numpy's function of two that gives the larger one, or the smaller."""
    if propagate_nan == tl.PropagateNan.ALL:
        return np.maximum if at_least else np.minimum
    return np.fmax if at_least else np.fmin


def _ahead(data: np.ndarray, axis: Any) -> np.ndarray:
    """With an axis before the others."""
    if type(axis) is not int or not -data.ndim <= axis < data.ndim:
        return np.moveaxis(data, axis, 0)
    if axis in (0, -data.ndim):
        return data
    axis %= data.ndim
    return data.transpose((axis, *(one for one in range(data.ndim) if one != axis)))


def _folded(x: Any, axis: Any, function: Any, keep_dims: bool) -> Any:
    """As ``reduce``, where numpy has the function that combines."""
    if not isinstance(x, Block):
        return reduce(x, axis, lambda a, b: a._with(b, function), keep_dims)
    data, kind = rounded(x.data, x.dtype), x.dtype
    data, axis = (data.reshape(-1), 0) if axis is None else (data, axis)
    now = _ahead(data, axis)
    while (count := now.shape[0]) > 1:
        if count % 2:
            raise MisuseError(f"a reduction wants a power of two, got {count}")
        now = rounded(computed(function, now[: count // 2], now[count // 2 :]), kind)
    return Block(np.moveaxis(now, 0, axis) if keep_dims else now[0], kind)


def reduce(x: Any, axis: Any, combine: Callable[..., Any], keep_dims: bool = False) -> Any:
    """Halves with halves, as a tree does; of a tuple, all of it at once."""
    single = isinstance(x, Block)
    parts = [x] if single else list(x)
    if axis is None:
        parts, axis = [one.reshape(one.numel) for one in parts], 0
    now = [Block(_ahead(one.data, axis), one.dtype) for one in parts]
    while (count := now[0].shape[0]) > 1:
        half = count // 2
        if count % 2:
            raise MisuseError(f"a reduction wants a power of two, got {count}")
        low = [Block(one.data[:half], one.dtype) for one in now]
        high = [Block(one.data[half:], one.dtype) for one in now]
        found = combine(*low, *high)
        now = [found] if isinstance(found, Block) else list(found)
    made = tuple(
        Block(np.moveaxis(one.data, 0, axis) if keep_dims else one.data[0], one.dtype)
        for one in now
    )
    return made[0] if single else made


def total(x: Block, axis: Any = None, keep_dims: bool = False, dtype: Any = None) -> Block:
    """The sum along an axis, in at least 32 bits."""
    if dtype is not None:
        x = x.to(dtype)
    elif x.dtype.is_int() and x.dtype.int_bitwidth < 32:
        x = x.to(tl.int32)
    return _folded(x, axis, plus, keep_dims)


def _extreme(at_least: bool, argument: Any) -> Callable[..., Any]:
    def of(
        x: Block,
        axis: Any = None,
        return_indices: bool = False,
        return_indices_tie_break_left: bool = True,
        keep_dims: bool = False,
        propagate_nan: Any = tl.PropagateNan.NONE,
    ) -> Any:
        best = _folded(x, axis, extreme_of(at_least, propagate_nan), keep_dims)
        if not return_indices:
            return best
        places = argument(x.data, axis=axis, keepdims=keep_dims)
        return best, Block(np.asarray(places, np.int32), tl.int32)

    return of


most, least = _extreme(True, np.argmax), _extreme(False, np.argmin)


def place_of(extreme: Callable[..., Any]) -> Callable[..., Block]:
    """Where the largest or the smallest value along an axis is; the first of them."""

    def of(x: Block, axis: Any, tie_break_left: bool = True, keep_dims: bool = False) -> Block:
        found: Block = extreme(x, axis, return_indices=True, keep_dims=keep_dims)[1]
        return found

    return of


def softmax(x: Block, dim: Any = None, keep_dims: bool = False, ieee_rounding: Any = False) -> Any:
    """exp(x) over its sum along an axis, in at least fp32."""
    axis = 0 if dim is None else dim
    x = x if x.dtype.primitive_bitwidth >= 32 else x.to(tl.float32)
    far = x - most(x, axis, keep_dims=keep_dims)
    power = Block(rounded(computed(np.exp, far.data.astype(np.float64)), far.dtype), far.dtype)
    return power / total(power, axis, keep_dims=keep_dims)


def _so_far(function: Any) -> Callable[..., Block]:
    """Every element with all before it along an axis, in bf16's case as fp32."""

    def of(x: Block, axis: int = 0, reverse: bool = False, dtype: Any = None) -> Block:
        if dtype is not None:
            x = x.to(dtype)
        elif x.dtype == tl.bfloat16:
            x = x.to(tl.float32)
        elif function is np.add and x.dtype.is_int() and x.dtype.int_bitwidth < 32:
            x = x.to(tl.uint32 if x.dtype.is_int_unsigned() else tl.int32)
        along = np.flip(x.data, axis) if reverse else x.data
        found = computed(function.accumulate, along, axis, along.dtype)
        return Block(rounded(np.flip(found, axis) if reverse else found, x.dtype), x.dtype)

    return of


sums_so_far, products_so_far = _so_far(np.add), _so_far(np.multiply)


def associative_scan(x: Any, axis: int, combine: Callable[..., Any], reverse: bool = False) -> Any:
    """Every element with all before it, one after the other."""
    single = isinstance(x, Block)
    parts = [x] if single else list(x)
    data = [np.moveaxis(one.data, axis, 0) for one in parts]
    if reverse:
        data = [one[::-1] for one in data]
    so_far = tuple(Block(one[0], part.dtype) for one, part in zip(data, parts, strict=True))
    rows = [[one.data for one in so_far]]
    for i in range(1, data[0].shape[0]):
        here = tuple(Block(one[i], part.dtype) for one, part in zip(data, parts, strict=True))
        found = combine(*so_far, *here)
        so_far = (found,) if isinstance(found, Block) else tuple(found)
        rows.append([one.data for one in so_far])
    stacked = [np.stack(one) for one in zip(*rows, strict=True)]
    if reverse:
        stacked = [one[::-1] for one in stacked]
    made = tuple(
        Block(np.moveaxis(one, 0, axis), part.dtype)
        for one, part in zip(stacked, so_far, strict=True)
    )
    return made[0] if single else made
