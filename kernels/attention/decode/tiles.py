"""Tiles of queries and of a cache: where they lie."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.attention.common.numerics.e4m3 import widened
from kernels.device.products import loaded_as_fp32


@triton.jit
def load_tokens(at, strides, o_token, o_head, in_m, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """[rows, BLOCK]: one token of one head a row."""
    o_d = tl.arange(0, BLOCK)
    o_row = o_token.to(tl.int64) * strides.row + o_head.to(tl.int64) * strides.head
    return tl.load(
        at + o_row[:, None] + o_d[None, :] * strides.column,
        mask=in_m[:, None] & (o_d < WIDTH)[None, :],
        other=0.0,
    )


@triton.jit
def block_at(at, strides, b_page, i_n, o_n, PAGE_SIZE: tl.constexpr, BLOCK_N: tl.constexpr):
    """A pointer to a block of keys from ``i_n`` on, and each key's offset from there. Where one
    scalar leads to the whole block, offsets within it fit 32 bits, unless strides are wide. Numbers
    of pages have 64 bits."""
    if PAGE_SIZE == 0:
        return at + tl.cast(i_n, tl.int64) * strides.row, o_n * strides.row
    elif PAGE_SIZE % BLOCK_N == 0:
        at += b_page * strides.batch
        at += tl.cast(i_n % PAGE_SIZE, tl.int64) * strides.row
        return at, o_n * strides.row
    else:
        return at, b_page * strides.batch + (i_n + o_n) % PAGE_SIZE * strides.row


@triton.jit
def as_operand(b_x, KIND: tl.constexpr, FP8: tl.constexpr):
    """A tile of the cache for products of KIND, by how an fp8 cache is read."""
    if FP8 == "native":
        b_x = b_x.to(KIND)
    elif FP8 != "":
        b_x = widened(b_x, FP8 == "fnuz").to(KIND)
    return loaded_as_fp32(b_x) if FP8 != "" and tl.float32 == KIND else b_x
