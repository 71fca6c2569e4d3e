"""Words that compute: of Gluon and of Triton, said of blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton.language as tl

from warpwatch.simulator.errors import MisuseError
from warpwatch.simulator.machine.global_memory import Pointer
from warpwatch.simulator.values.blocks import Block, block_of
from warpwatch.simulator.values.elements import meeting, rounded
from warpwatch.simulator.values.layouts import sizes_of


def arange(start: int, end: int | None = None, layout: None = None) -> Block:
    start, end = (0, start) if end is None else (start, end)
    return Block(np.arange(int(start), int(end), dtype=np.int32), tl.int32)


def full(shape: Any, value: Any, dtype: tl.dtype, layout: None = None) -> Block:
    one = block_of(value, dtype).to(dtype).data
    return Block(np.broadcast_to(one, sizes_of((shape,))).copy(), dtype)


def zeros(shape: Any, dtype: tl.dtype, layout: None = None) -> Block:
    return full(shape, 0, dtype)


def where(condition: Any, x: Any, y: Any) -> Block | Pointer:
    if isinstance(x, Pointer):
        return x.or_else(block_of(condition).data, y)
    if isinstance(x, Block) or not isinstance(y, Block):
        x = block_of(x, y.dtype if isinstance(y, Block) else None)
        y = block_of(y, x.dtype)
    else:
        y = block_of(y)
        x = block_of(x, y.dtype)
    kind = meeting(x.dtype, y.dtype)
    chosen = np.where(block_of(condition).data, rounded(x.data, kind), rounded(y.data, kind))
    return Block(chosen, kind)


def _larger(at_least: bool) -> Callable[..., Any]:
    def choose(a: Any, b: Any, propagate_nan: Any = tl.PropagateNan.NONE) -> Any:
        if not (isinstance(a, Block) or isinstance(b, Block)):
            return max(a, b) if at_least else min(a, b)
        function: Any
        if propagate_nan == tl.PropagateNan.ALL:
            function = np.maximum if at_least else np.minimum
        else:
            function = np.fmax if at_least else np.fmin
        a = block_of(a, b.dtype if isinstance(b, Block) else None)
        return a._with(b, function)

    return choose


maximum, minimum = _larger(True), _larger(False)


def _of_all(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def choose(*values: Any) -> Any:
        found = values[0]
        for one in values[1:]:
            found = function(found, one)
        return found

    return choose


def cdiv(a: Any, b: Any) -> Any:
    return (a + b - 1) // b


def _rounded_once(function: Any) -> Callable[[Any], Block]:
    def of(x: Any) -> Block:
        x = block_of(x)
        if not x.dtype.is_floating():
            raise MisuseError(f"expected floating point, got {x.dtype}")
        with np.errstate(all="ignore"):
            return Block(rounded(function(x.data.astype(np.float64)), x.dtype), x.dtype)

    return of


def reduce(x: Any, axis: Any, combine: Callable[..., Any], keep_dims: bool = False) -> Any:
    """Halves with halves, as a tree does; of a tuple, all of it at once."""
    single = isinstance(x, Block)
    parts = [x] if single else list(x)
    if axis is None:
        parts, axis = [one.reshape(one.numel) for one in parts], 0
    now = [Block(np.moveaxis(one.data, axis, 0), one.dtype) for one in parts]
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


def _sum(x: Block, axis: Any = None, keep_dims: bool = False, dtype: Any = None) -> Block:
    if dtype is not None:
        x = x.to(dtype)
    elif x.dtype.is_int() and x.dtype.int_bitwidth < 32:
        x = x.to(tl.int32)
    total: Block = reduce(x, axis, lambda a, b: a + b, keep_dims)
    return total


def _extreme(choose: Callable[..., Any], argument: Any) -> Callable[..., Any]:
    def of(
        x: Block,
        axis: Any = None,
        return_indices: bool = False,
        return_indices_tie_break_left: bool = True,
        keep_dims: bool = False,
        propagate_nan: Any = tl.PropagateNan.NONE,
    ) -> Any:
        best = reduce(x, axis, lambda a, b: choose(a, b, propagate_nan), keep_dims)
        if not return_indices:
            return best
        places = argument(x.data, axis=axis, keepdims=keep_dims)
        return best, Block(np.asarray(places, np.int32), tl.int32)

    return of


_max, _min = _extreme(maximum, np.argmax), _extreme(minimum, np.argmin)


def join(a: Block, b: Block) -> Block:
    return Block(np.stack(np.broadcast_arrays(a.data, b.data), axis=-1), a.dtype)


def convert_layout(x: Block, layout: None, assert_trivial: bool = False) -> Block:
    return x


def broadcast(a: Any, b: Any) -> tuple[Block, Block]:
    """Both of one shape."""
    a, b = block_of(a), block_of(b)
    left, right = np.broadcast_arrays(a.data, b.data)
    return Block(left, a.dtype), Block(right, b.dtype)


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


def gather(x: Block, index: Block, axis: int) -> Block:
    """Elements along an axis, by their numbers."""
    return Block(np.take_along_axis(x.data, index.data.astype(np.int64), int(axis)), x.dtype)


def dot(
    a: Block,
    b: Block,
    acc: Any = None,
    input_precision: Any = None,
    allow_tf32: Any = None,
    max_num_imprecise_acc: Any = None,
    out_dtype: tl.dtype = tl.float32,
) -> Block:
    """A product of blocks, as plain Triton says it."""
    if a.dtype != b.dtype:
        raise MisuseError(f"expected operands of one type, got {a.dtype} and {b.dtype}")
    if a.shape[-1] != b.shape[-2]:
        raise MisuseError(f"shapes do not fit: {tuple(a.shape)} @ {tuple(b.shape)}")
    if not a.dtype.is_floating():
        whole = np.matmul(a.data.astype(np.int32), b.data.astype(np.int32))
        found = Block(whole, tl.int32)
    else:
        kind = tl.float64 if a.dtype == tl.float64 else tl.float32
        with np.errstate(all="ignore"):
            wide = np.matmul(rounded(a.data, kind), rounded(b.data, kind))
        found = Block(wide, kind)
    if acc is not None:
        found = acc + found
    return found if found.dtype == out_dtype or acc is not None else found.to(out_dtype)


def map_elementwise(function: Callable[..., Any], *given: Any, pack: int = 1) -> Any:
    """``function`` of every element by itself."""
    blocks = [block_of(one) for one in given]
    arrays = np.broadcast_arrays(*(one.data for one in blocks))
    rows = []
    for values in zip(*(one.ravel() for one in arrays), strict=True):
        scalars = [
            Block(np.asarray(value), one.dtype) for value, one in zip(values, blocks, strict=True)
        ]
        found = function(*scalars)
        rows.append(found if isinstance(found, tuple) else (found,))
    columns = [list(column) for column in zip(*rows, strict=True)]
    made = tuple(
        Block(
            np.asarray([block_of(one).data for one in column]).reshape(arrays[0].shape),
            block_of(column[0]).dtype,
        )
        for column in columns
    )
    return made[0] if len(made) == 1 else made


def umulhi(a: Any, b: Any) -> Block:
    """The upper half of an integer product."""
    if not isinstance(a, Block):
        a, b = b, a
    b = block_of(b, a.dtype)
    kind = meeting(a.dtype, b.dtype)
    bits = kind.int_bitwidth
    wide = a.data.astype(object) * b.data.astype(object)
    high = np.frompyfunc(lambda one: int(one) >> bits, 1, 1)(wide)
    return Block(np.asarray(high).astype(rounded(a.data, kind).dtype), kind)


def fma(a: Any, b: Any, c: Any) -> Block:
    """a * b + c, rounded once."""
    a = block_of(a)
    b, c = block_of(b, a.dtype), block_of(c, a.dtype)
    with np.errstate(all="ignore"):
        exact = a.data.astype(np.float64) * b.data + c.data
    return Block(rounded(exact, a.dtype), a.dtype)


def clamp(x: Block, low: Any, high: Any, propagate_nan: Any = tl.PropagateNan.NONE) -> Block:
    """x, or the nearer bound."""
    return minimum(maximum(x, low, propagate_nan), high, propagate_nan)


def checked(condition: Any, message: Any = "", mask: Any = None) -> None:
    """An assertion of the kernel's."""
    if isinstance(condition, Block):
        holds = condition.data if mask is None else condition.data | ~block_of(mask).data
        condition = bool(np.all(holds))
    if not condition:
        raise MisuseError(
            f"an assertion of the kernel fails: {message or 'no message'}", "assertion"
        )


COMPUTES: dict[str, Any] = {
    "arange": arange,
    "full": full,
    "zeros": zeros,
    "full_like": lambda x, value, shape=None, dtype=None, layout=None: full(
        shape or x.shape, value, dtype or x.dtype
    ),
    "zeros_like": lambda x, shape=None, dtype=None, layout=None: full(
        shape or x.shape, 0, dtype or x.dtype
    ),
    "where": where,
    "maximum": maximum,
    "minimum": minimum,
    "clamp": clamp,
    "cdiv": cdiv,
    "add": lambda a, b, sanitize_overflow=True: block_of(a) + b,
    "sub": lambda a, b, sanitize_overflow=True: block_of(a) - b,
    "mul": lambda a, b, sanitize_overflow=True: block_of(a) * b,
    "cast": lambda x, dtype, fp_downcast_rounding=None, bitcast=False: block_of(x).to(
        dtype, bitcast=bitcast
    ),
    "exp2": _rounded_once(np.exp2),
    "log2": _rounded_once(np.log2),
    "exp": _rounded_once(np.exp),
    "log": _rounded_once(np.log),
    "sqrt": _rounded_once(np.sqrt),
    "sqrt_rn": _rounded_once(np.sqrt),
    "rsqrt": _rounded_once(lambda x: 1.0 / np.sqrt(x)),
    "sin": _rounded_once(np.sin),
    "cos": _rounded_once(np.cos),
    "floor": _rounded_once(np.floor),
    "ceil": _rounded_once(np.ceil),
    "erf": _rounded_once(lambda x: torch.erf(torch.from_numpy(x)).numpy()),
    "abs": lambda x: abs(block_of(x)),
    "div_rn": lambda a, b: block_of(a) / b,
    "fdiv": lambda a, b, ieee_rounding=False: block_of(a) / b,
    "fma": fma,
    "umulhi": umulhi,
    "reduce": reduce,
    "associative_scan": associative_scan,
    "sum": _sum,
    "max": _max,
    "min": _min,
    "join": join,
    "split": lambda x: x.split(),
    "trans": lambda x, *order: x.permute(*order) if order else x.trans(),
    "permute": lambda x, *order: x.permute(*order),
    "reshape": lambda x, *shape, can_reorder=False: x.reshape(*shape),
    "view": lambda x, *shape: x.reshape(*shape),
    "ravel": lambda x, can_reorder=False: x.reshape(x.numel),
    "expand_dims": lambda x, axis: block_of(x).expand_dims(axis),
    "broadcast": broadcast,
    "broadcast_to": lambda x, *shape: block_of(x).broadcast_to(*shape),
    "gather": gather,
    "dot": dot,
    "dot_fma": lambda a, b, acc: dot(a, b, acc),
    "map_elementwise": map_elementwise,
    "convert_layout": convert_layout,
    "to_tensor": block_of,
    "static_assert": checked,
    "device_assert": checked,
}
