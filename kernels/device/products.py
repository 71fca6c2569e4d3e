"""Products of tiles added to what is there: in fp32 as exactly as the libraries, or better."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from triton.language import target_info

from kernels.runtime.targets import ADDS_FP64


@triton.constexpr_function
def sum_type(dtype: Any) -> Any:
    """What products of ``dtype`` are added up in: fp64 for fp32 where a matrix unit does so.

    Triton's fp32 products are one long run of additions, whose error grows with the root of its
    length; the libraries add many short ones. Products in fp64 are exact and faster than Triton's
    in fp32: the matrix unit reads each operand from shared memory once.
    """
    found = target_info.current_target()
    adds_fp64 = found is not None and found.backend == "cuda" and found.arch in ADDS_FP64
    in_fp64 = adds_fp64 and dtype == tl.float32
    return tl.float64 if in_fp64 else tl.float32


@triton.jit
def apart(b_x):
    """A tile as it is, but as a sum of one value each. Triton gives up on products in fp64
    (MMAv2.cpp: "largeK") whose operands derive, value by value, from a load of fewer bits than 32,
    or from one of 32 and a join, which it halves the bits for. A sum ends that search."""
    return tl.sum(tl.expand_dims(b_x, 2), 2)


@triton.jit
def loaded_as_fp32(b_x):
    """A tile in fp32 of fewer bits, to be multiplied, maybe in fp64."""
    return apart(b_x.to(tl.float32))


@triton.jit
def add_product(b_c, b_a, b_b):
    """b_c + b_a @ b_b, where b_c is of ``sum_type`` of the dtype of b_b, which b_a is rounded to
    unless sums are of fp64.

    In fp32 without a unit for fp64 each tile is added up by itself: as a difference, or Triton
    would make one run of additions of it.
    """
    if b_c.dtype == tl.float64:
        return tl.dot(b_a.to(tl.float64), b_b.to(tl.float64), b_c, out_dtype=tl.float64)
    elif b_b.dtype == tl.float32:
        return b_c - tl.dot(-b_a.to(b_b.dtype), b_b, input_precision="ieee")
    else:
        return tl.dot(b_a.to(b_b.dtype), b_b, b_c, input_precision="ieee")


@triton.jit
def nearest_tf32(b_x):
    """fp32 rounded to the nearest tf32, ties away from zero, as the libraries do: the matrix unit
    itself drops the last 13 bits, which errs twice as far and always towards zero."""
    b_bits = (b_x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000
    # The carry of a NaN whose bits are all set would make a zero of it.
    return tl.where(b_x == b_x, b_bits.to(tl.float32, bitcast=True), b_x)
