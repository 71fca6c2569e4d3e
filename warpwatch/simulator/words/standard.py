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
from warpwatch.simulator.values.elements import KEPT, computed, meeting, rounded
from warpwatch.simulator.values.layouts import sizes_of
from warpwatch.simulator.words.reductions import (
    associative_scan,
    extreme_of,
    least,
    most,
    place_of,
    products_so_far,
    reduce,
    softmax,
    sums_so_far,
    total,
)


def arange(start: int, end: int | None = None, layout: None = None) -> Block:
    start, end = (0, start) if end is None else (start, end)
    start, end = int(start), int(end)
    if end <= start:
        raise MisuseError(f"arange's end must be greater than its start, got {start} and {end}")
    if (end - start) & (end - start - 1):
        raise MisuseError(f"arange's range must be a power of 2, got {end - start}")
    return Block(np.arange(start, end, dtype=np.int32), tl.int32)


def full(shape: Any, value: Any, dtype: tl.dtype, layout: None = None) -> Block:
    one = block_of(value, dtype).to(dtype).data
    return Block(np.broadcast_to(one, sizes_of((shape,))).copy(), dtype)


def zeros(shape: Any, dtype: tl.dtype, layout: None = None) -> Block:
    if not isinstance(dtype, tl.dtype) or dtype.name not in KEPT:
        return full(shape, 0, dtype)
    return Block(np.zeros(sizes_of((shape,)), KEPT[dtype.name]), dtype)


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
    chooses, left, right = block_of(condition).data, rounded(x.data, kind), rounded(y.data, kind)
    if not (chooses.ndim or left.ndim or right.ndim):
        return Block(left if chooses else right, kind)
    return Block(np.where(chooses, left, right), kind)


def _larger(at_least: bool) -> Callable[..., Any]:
    def choose(a: Any, b: Any, propagate_nan: Any = tl.PropagateNan.NONE) -> Any:
        if not (isinstance(a, Block) or isinstance(b, Block)):
            return max(a, b) if at_least else min(a, b)
        function = extreme_of(at_least, propagate_nan)
        if not isinstance(a, Block):
            a = block_of(a, b.dtype)
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
        found = computed(function, x.data.astype(np.float64))
        return Block(rounded(found, x.dtype), x.dtype)

    return of


def join(a: Block, b: Block) -> Block:
    return Block(np.stack(np.broadcast_arrays(a.data, b.data), axis=-1), a.dtype)


def interleave(a: Any, b: Any) -> Block:
    """Elements of both, one of each in turn."""
    pair = join(*broadcast(a, b))
    return pair.reshape(*pair.shape[:-2], 2 * pair.shape[-2]) if len(pair.shape) > 1 else pair


def flip(x: Block, dim: int | None = None) -> Block:
    """The other way round along an axis."""
    return Block(np.flip(x.data, -1 if dim is None else int(dim)), x.dtype)


def in_order(x: Block, dim: int | None = None, descending: Any = False) -> Block:
    """Sorted along the last axis."""
    if dim is not None and int(dim) not in (-1, x.data.ndim - 1):
        raise MisuseError(f"a sort is along the last axis, got axis {int(dim)}")
    found = np.sort(x.data, axis=-1)
    return Block(found[..., ::-1] if descending else found, x.dtype)


def largest(x: Block, k: int, dim: int | None = None) -> Block:
    """The k largest along the last axis, the largest first."""
    return Block(in_order(x, dim, descending=True).data[..., : int(k)], x.dtype)


def convert_layout(x: Block, layout: None, assert_trivial: bool = False) -> Block:
    return x


def broadcast(a: Any, b: Any) -> tuple[Block, Block]:
    """Both of one shape."""
    a, b = block_of(a), block_of(b)
    left, right = np.broadcast_arrays(a.data, b.data)
    return Block(left, a.dtype), Block(right, b.dtype)


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
        wide = computed(np.matmul, rounded(a.data, kind), rounded(b.data, kind))
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
    "sum": total,
    "max": most,
    "min": least,
    "argmax": place_of(most),
    "argmin": place_of(least),
    "cumsum": sums_so_far,
    "cumprod": products_so_far,
    "softmax": softmax,
    "sort": in_order,
    "topk": largest,
    "flip": flip,
    "interleave": interleave,
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
