"""Types of elements: how registers and memory keep them, and in which type two of them meet.

bf16 and fp8 are kept in registers as the fp32 values that they stand for.
"""

from __future__ import annotations

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


def encode(values: np.ndarray, dtype: tl.dtype) -> np.ndarray:
    """As memory holds them: the bits of what registers hold as wider values."""
    if dtype.name == "bf16":
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        rounded = ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> 16) & (
            np.uint32(0xFFFF)
        )
        nan = np.isnan(values)
        return np.where(nan, np.uint16(0x7FFF), rounded.astype(np.uint16))
    if dtype.name in FP8:
        kind = FP8[dtype.name]
        most = torch.finfo(kind).max
        # Hardware's casts saturate, infinities too; torch's make NaN of them.
        within = np.clip(values, -most, most).astype(np.float32)
        narrow = torch.from_numpy(np.ascontiguousarray(within)).to(kind)
        return narrow.view(torch.uint8).numpy().reshape(values.shape)
    with np.errstate(over="ignore"):  # fp16's infinity is what is meant
        return np.ascontiguousarray(values).astype(STORED[dtype.name], copy=False)


def decode(raw: np.ndarray, dtype: tl.dtype) -> np.ndarray:
    if dtype.name == "bf16":
        return (raw.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if dtype.name in FP8:
        bits = torch.from_numpy(np.ascontiguousarray(raw))
        return bits.view(FP8[dtype.name]).float().numpy().reshape(raw.shape)
    return raw.astype(KEPT[dtype.name], copy=False)


def rounded(values: np.ndarray, dtype: tl.dtype) -> np.ndarray:
    """``values`` as ``dtype`` keeps them."""
    name = dtype.name
    if name == "bf16" or name in FP8:
        return decode(encode(values, dtype), dtype)
    values = np.asarray(values)
    kept = KEPT[name]
    return values if values.dtype == kept else values.astype(kept)


_LIMITS = {
    name: (int(np.iinfo(kind).min), int(np.iinfo(kind).max))
    for name, kind in KEPT.items()
    if np.issubdtype(kind, np.integer)
}
_met: dict[tuple[str, str, bool], tl.dtype] = {}  # Triton compares types slowly


def holds(dtype: tl.dtype, value: int) -> bool:
    """Whether an integer type holds a number."""
    low, high = _LIMITS[dtype.name]
    return low <= value <= high


def meeting(a: tl.dtype, b: tl.dtype, divides: bool = False) -> tl.dtype:
    """The type in which values of two types meet."""
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
