"""Tiles of queries and of a cache: which keys they see, and where they lie."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.attention.common.numerics.e4m3 import widened

from .cache import chunk_of, keys_before, lead, trail
from .rotary import load_rotated


@triton.jit
def keys_of_tile(
    given,
    strides,
    sight,
    i_b,
    i_m,
    n_rows,
    diagonal,
    seqlen_k,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """The first key that any row of a tile sees, in whole blocks, the one after the last, and how
    many at the front are no sequence's."""
    right, left, chunk = sight
    o_end = seqlen_k
    o_first = 0
    if CAUSAL:
        i_last = tl.minimum(i_m * BLOCK_M + BLOCK_M - 1, n_rows - 1) // GROUP
        o_end = tl.maximum(tl.minimum(o_end, i_last + diagonal + right + 1), 0)
    if left is not None:
        o_first = tl.maximum(i_m * BLOCK_M // GROUP + diagonal + left, 0) // BLOCK_N * BLOCK_N
    n_pad = 0
    if given.leftpad is not None:
        n_pad = keys_before(given.leftpad, strides.leftpad, i_b)
        o_first = tl.maximum(n_pad // BLOCK_N * BLOCK_N, o_first)
    if chunk is not None:
        i_early = tl.maximum(i_m * BLOCK_M // GROUP + diagonal, n_pad)
        o_first = tl.maximum(chunk_of(i_early, n_pad, chunk) // BLOCK_N * BLOCK_N, o_first)
        i_late = tl.minimum(i_m * BLOCK_M + BLOCK_M - 1, n_rows - 1) // GROUP + diagonal
        o_end = tl.minimum(o_end, chunk_of(i_late, n_pad, chunk) + chunk)
    return o_first, o_end, n_pad


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
def load_turned(
    q,
    q_strides,
    given,
    strides,
    positions,
    i_b,
    n_before,
    o_token,
    o_head,
    in_m,
    ORDERED: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    ROTARY: tl.constexpr,
    INTERLEAVED: tl.constexpr,
):
    """The same of queries, rotated to their positions or, unless ORDERED, all to the first one."""
    o_q = o_token.to(tl.int64) * q_strides.row + o_head.to(tl.int64) * q_strides.head
    first = n_before
    if given.turned_from is not None:
        first = tl.maximum(tl.load(given.turned_from + i_b), 0)
    o_position = first + tl.zeros_like(o_token)
    if ORDERED:
        o_position += o_token
    o_position = tl.minimum(o_position, positions - 1).to(tl.int64)
    b_q = load_rotated(
        q + o_q, o_position, in_m, given, strides, q_strides.column, HEAD_DIM, BLOCK_D, ROTARY,
        INTERLEAVED,
    )  # fmt: skip
    return b_q.to(q.dtype.element_ty)


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
    return b_x


@triton.jit
def seen_keys(
    in_n, o_key, r_token, b_chunk, diagonal, sight, CAUSAL: tl.constexpr, TURNED: tl.constexpr
):
    """Which keys of a tile its tokens see, of those ``in_n``."""
    right, left, chunk = sight
    seen = trail(in_n, TURNED)
    if CAUSAL:
        seen = seen & (o_key <= r_token + (diagonal + right))
    if left is not None:
        seen = seen & (o_key >= r_token + (diagonal + left))
    if chunk is not None:
        r_chunk = lead(b_chunk, TURNED)
        seen = seen & (o_key >= r_chunk) & (o_key < r_chunk + chunk)
    return seen


@triton.jit
def powers(b_s, b_max, b_max_new, NATURAL: tl.constexpr, TURNED: tl.constexpr):
    """Weights of scores, and by what earlier ones are multiplied under a new maximum."""
    if NATURAL:
        b_p = tl.exp(b_s - lead(b_max_new, TURNED))
        b_alpha = tl.exp(b_max - b_max_new)
    else:
        b_p = tl.exp2(b_s - lead(b_max_new, TURNED))
        b_alpha = tl.exp2(b_max - b_max_new)
    return b_p, b_alpha
