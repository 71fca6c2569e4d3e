"""Operands of block-scaled products: values of few bits, and a scale for every so many of them."""

from __future__ import annotations

import numpy as np
import triton.language as tl

from warpwatch.simulator.errors import MisuseError
from warpwatch.simulator.values.elements import decode

FORMATS = {"e2m1": tl.uint8, "e4m3": tl.float8e4nv, "e5m2": tl.float8e5}
FP4 = np.asarray([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def widened(values: np.ndarray, dtype: tl.dtype, form: str, axis: int) -> np.ndarray:
    """Values of an operand in a format of block-scaled products.

    Args:
        values: The operand as kernels keep it.
        dtype: Its type; of fp4, bytes of two values.
        form: ``e2m1``, ``e4m3`` or ``e5m2``.
        axis: The axis along which fp4 is packed.

    Returns:
        The values, in fp32.
    """
    if form not in FORMATS:
        raise MisuseError(f"expected a format among {', '.join(FORMATS)}, got {form!r}")
    if dtype not in (FORMATS[form], tl.uint8):
        raise MisuseError(f"expected {FORMATS[form]} of an operand in {form}, got {dtype}")
    if form == "e2m1":  # the first one low
        both = np.stack([FP4[values & 15], FP4[values >> 4]], axis=axis + 1)
        shape = [2 * one if i == axis else one for i, one in enumerate(values.shape)]
        return both.reshape(shape)
    if dtype == tl.uint8:
        values = decode(values, FORMATS[form])
    return np.asarray(values, np.float32)


def factors_of(scales: np.ndarray, dtype: tl.dtype) -> np.ndarray:
    """Scales as numbers: bytes are exponents, with 127 for one.

    Args:
        scales: The scales as kernels keep them.
        dtype: Their type.

    Returns:
        The factors, in fp32.
    """
    if dtype not in (tl.uint8, tl.int8):
        return np.asarray(scales, np.float32)
    exponents = scales.astype(np.uint8).astype(np.int32)
    found = np.where(exponents == 255, np.nan, np.ldexp(1.0, exponents - 127))
    return np.asarray(found, np.float32)


def scaled_by(values: np.ndarray, factors: np.ndarray, axis: int) -> np.ndarray:
    """Values times their scales.

    Args:
        values: The values, of two axes.
        factors: For each row the factors of its blocks.
        axis: The axis of the values that has the blocks.

    Returns:
        The products.
    """
    rows, length = values.shape[1 - axis], values.shape[axis]
    if factors.ndim != 2 or factors.shape[0] < rows or length % factors.shape[1]:
        raise MisuseError(
            f"scales of {list(factors.shape)} do not fit {rows} rows of {length} values"
        )
    each = np.repeat(factors[:rows], length // factors.shape[1], axis=1)
    with np.errstate(all="ignore"):
        return np.asarray(values * (each if axis == 1 else each.T), np.float32)
