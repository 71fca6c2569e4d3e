"""Products of tiles along the head dim, and how many of them are added one after the other."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.device.products import sum_type


@triton.jit
def head_product(b_a, b_b, WIDE: tl.constexpr = False):
    """[A, B] from tiles [A, BLOCK_D] and [B, BLOCK_D].

    In fp32 the products are added in runs of 16, and then the runs: one long run of additions
    would lose more than the libraries do, which add in as many lanes as a vector has.
    With WIDE what is added in fp64 is not rounded.
    """
    if sum_type(b_a.dtype) == tl.float64:
        b_s = tl.dot(b_a.to(tl.float64), b_b.T.to(tl.float64), out_dtype=tl.float64)
        return b_s if WIDE else b_s.to(tl.float32)
    elif b_a.dtype == tl.float32:
        PARTS: tl.constexpr = b_a.shape[1] // 16
        b_a = tl.permute(tl.reshape(b_a, [b_a.shape[0], PARTS, 16]), 1, 0, 2)
        b_b = tl.permute(tl.reshape(b_b, [b_b.shape[0], PARTS, 16]), 1, 2, 0)
        return tl.sum(tl.dot(b_a, b_b, input_precision="ieee"), 0)
    else:
        return tl.dot(b_a, b_b.T, input_precision="ieee")
