"""Types of elements: how registers and memory keep them, and in which type two of them meet.

bf16 and fp8 are kept in registers as the fp32 values that they stand for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
import triton.language as tl

from warpwatch.simulator.errors import MisuseError

# How a type is kept in registers, and in memory.
KEPT: dict[str, Any] = {
    "int1": np.bool_,
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
    "uint16": np.uint16,
    "uint32": np.uint32,
    "uint64": np.uint64,
    "fp16": np.float16,
    "bf16": np.float32,
    "fp32": np.float32,
    "fp64": np.float64,
    "fp8e4nv": np.float32,
    "fp8e4b8": np.float32,
    "fp8e5": np.float32,
}
FP8 = {
    "fp8e4nv": torch.float8_e4m3fn,
    "fp8e4b8": torch.float8_e4m3fnuz,
    "fp8e5": torch.float8_e5m2,
}
STORED: dict[str, Any] = {**KEPT, "int1": np.uint8, "bf16": np.uint16} | dict.fromkeys(
    FP8, np.uint8
)
OF_TORCH = {
    torch.bool: tl.int1,
    torch.int8: tl.int8,
    torch.int16: tl.int16,
    torch.int32: tl.int32,
    torch.int64: tl.int64,
    torch.uint8: tl.uint8,
    torch.uint16: tl.uint16,
    torch.uint32: tl.uint32,
    torch.uint64: tl.uint64,
    torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16,
    torch.float32: tl.float32,
    torch.float64: tl.float64,
    torch.float8_e4m3fn: tl.float8e4nv,
    torch.float8_e4m3fnuz: tl.float8e4b8,
    torch.float8_e5m2: tl.float8e5,
}


# Types whose values registers hold as they are, by name.
_NATIVE = {
    name: np.dtype(kind) for name, kind in KEPT.items() if name != "bf16" and name not in FP8
}
_ITEMS = {name: np.dtype(kind).itemsize for name, kind in STORED.items()}
# Integers: how they are kept, the least and the most that a type holds.
INTEGERS = {
    name: (kind, int(np.iinfo(kind).min), int(np.iinfo(kind).max))
    for name, kind in _NATIVE.items()
    if np.issubdtype(kind, np.integer)
}
_HALF, _ONE, _SHIFT = (np.uint32(one) for one in (0x7FFF, 1, 16))
_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


@contextmanager
def quiet() -> Iterator[None]:
    """Inside, numpy warns of nothing."""
    token = _quiet.set(True)
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        _quiet.reset(token)


def computed(function: Callable[..., Any], *given: Any) -> Any:
    """What a function makes of arrays, without warnings: to ask for that takes longer than to
    multiply a thousand values, so it is not done anew within a launch."""
    if _quiet.get():
        return function(*given)
    with np.errstate(all="ignore"):
        return function(*given)


def item_size(dtype: tl.dtype) -> int:
    """The bytes of a value in memory."""
    return _ITEMS[dtype.name]


def _halved(bits: np.ndarray) -> np.ndarray:
    """Bits of fp32 with those of the nearest bf16 in their upper halves."""
    found: np.ndarray = bits >> _SHIFT
    found &= _ONE
    found += _HALF
    found += bits
    return found


def encode(values: np.ndarray, dtype: tl.dtype) -> np.ndarray:
    """As memory holds them: the bits of what registers hold as wider values."""
    if dtype.name == "bf16":
        found = _halved(np.ascontiguousarray(values, np.float32).view(np.uint32))
        found >>= _SHIFT
        found = found.astype(np.uint16)
        nan = np.isnan(values)
        if nan.any():
            found[nan] = 0x7FFF
        return found
    if dtype.name in FP8:
        kind = FP8[dtype.name]
        most = torch.finfo(kind).max
        # Hardware's casts saturate, infinities too; torch's make NaN of them.
        within = np.clip(values, -most, most).astype(np.float32)
        narrow = torch.from_numpy(np.ascontiguousarray(within)).to(kind)
        return narrow.view(torch.uint8).numpy().reshape(values.shape)
    # fp16's infinity is what is meant.
    return np.asarray(computed(_stored, values, STORED[dtype.name]))


def _stored(values: np.ndarray, kind: Any) -> np.ndarray:
    return np.ascontiguousarray(values).astype(kind, copy=False)


def decode(raw: np.ndarray, dtype: tl.dtype) -> np.ndarray:
    if dtype.name == "bf16":
        wide = raw.astype(np.uint32)
        wide <<= _SHIFT
        return wide.view(np.float32)
    if dtype.name in FP8:
        bits = torch.from_numpy(np.ascontiguousarray(raw))
        return bits.view(FP8[dtype.name]).float().numpy().reshape(raw.shape)
    return raw.astype(KEPT[dtype.name], copy=False)


def rounded(values: np.ndarray, dtype: tl.dtype) -> np.ndarray:
    """``values`` as ``dtype`` keeps them."""
    kept = _NATIVE.get(dtype.name)
    if kept is None:
        return decode(encode(values, dtype), dtype)
    if type(values) is not np.ndarray:
        values = np.asarray(values)
    return values if values.dtype is kept or values.dtype == kept else values.astype(kept)


_met: dict[tuple[str, str, bool], tl.dtype] = {}  # Triton compares types slowly


def holds(dtype: tl.dtype, value: int) -> bool:
    """Whether an integer type holds a number."""
    _, low, high = INTEGERS[dtype.name]
    return low <= value <= high


def meeting(a: tl.dtype, b: tl.dtype, divides: bool = False) -> tl.dtype:
    """The type in which values of two types meet."""
    if a.name == b.name and not divides:
        return a
    key = (a.name, b.name, divides)
    if key not in _met:
        _met[key] = _meeting(a, b, divides)
    return _met[key]


def _meeting(a: tl.dtype, b: tl.dtype, divides: bool) -> tl.dtype:
    for wide in (tl.float64, tl.float32):
        if wide in (a, b):
            return wide
    if tl.float16 in (a, b):
        return tl.float32 if divides else tl.float16
    if tl.bfloat16 in (a, b):
        return tl.bfloat16 if a == b and not divides else tl.float32
    if a.is_floating() and b.is_floating():
        return a if a == b else tl.float16
    if a.is_floating() or b.is_floating():
        raise MisuseError(f"Triton knows no type in which {a} and {b} meet")
    if a.int_bitwidth != b.int_bitwidth:
        return a if a.int_bitwidth > b.int_bitwidth else b
    return a if a.is_int_unsigned() or a == b else b
