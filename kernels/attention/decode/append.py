"""Writes new keys and values into a key-value cache, the keys rotated to their positions."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents

from kernels.attention.common.addressing import Layout, spans, wide_columns
from kernels.attention.common.columns import padded
from kernels.attention.common.numerics import e4m3
from kernels.attention.common.numerics.e4m3 import narrowed
from kernels.runtime import targets
from kernels.runtime.launch import noted

from .arguments import given
from .cache import Cache, head_scale, keys_in_cache, owners, row_in_cache
from .rotary import Rotary, load_columns, load_rotated

ROWS = tl.constexpr(16)
# Entries of packed sequences' bounds that are read at a time.
BOUNDS = tl.constexpr(64)


@triton.jit(do_not_specialize=["length"])
def kvcache_append(
    k,
    v,
    k_cache,
    v_cache,
    given,
    length,
    strides,
    cache_strides,
    positions,
    kv_heads,
    tokens,
    batch,
    capacity,
    page_size,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_V: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    ROTARY: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    FP8: tl.constexpr,
    EARLY: tl.constexpr,
    FAR: tl.constexpr,
):
    """Row r of a sequence is new token r // kv_heads of head r % kv_heads; token i becomes key
    ``length`` + i, unless the cache has no room for it. With cu_new the tokens of ``batch``
    sequences are packed one after the other, and i counts those of a sequence. With FP8 the caches
    are bytes of e4m3 (of flavour fn or fnuz), and hold what comes divided by its scale. FAR:
    columns may lie so far apart that 32 bits do not count them."""
    k_strides, v_strides = strides.k, strides.v
    k_cache_strides, v_cache_strides = cache_strides.k, cache_strides.v
    if FAR:
        k_strides, k_cache_strides = wide_columns(k_strides), wide_columns(k_cache_strides)
        v_strides, v_cache_strides = wide_columns(v_strides), wide_columns(v_cache_strides)
    if EARLY:
        gdc_launch_dependents()
    n_rows = tokens * kv_heads
    n_blocks = tl.cdiv(n_rows, ROWS)
    i_b = tl.program_id(0) // n_blocks
    o_row = tl.program_id(0) % n_blocks * ROWS + tl.arange(0, ROWS)
    o_token = (o_row // kv_heads).to(tl.int64)
    o_head = (o_row % kv_heads).to(tl.int64)
    in_rows = o_row < n_rows
    i_owner = i_b
    o_new = o_token
    if given.cu_new is not None:
        i_owner = owners(given.cu_new, batch, o_token, BOUNDS)
        in_rows = in_rows & (i_owner < batch)
        i_owner = tl.minimum(i_owner, batch - 1)
        o_new -= tl.load(given.cu_new + i_owner)
        in_rows = in_rows & (o_new >= 0)
    o_key = keys_in_cache(given.seqlens, length, i_owner, capacity) + o_new
    in_rows = in_rows & (o_key < capacity)

    i_cache = row_in_cache(given.batch_idx, i_owner)
    if given.table is not None:
        p_page = (
            given.table.at
            + i_cache.to(tl.int64) * given.table.row
            + o_key // page_size * given.table.column
        )
        o_block = tl.load(p_page, mask=in_rows, other=0).to(tl.int64)
        o_place = o_key % page_size
    else:
        o_block = i_cache.to(tl.int64)
        o_place = o_key

    k += i_b.to(tl.int64) * k_strides.batch
    # [ROWS, BLOCK_D]
    rows = k + o_token * k_strides.row + o_head * k_strides.head
    if ROTARY:
        o_position = o_key
        if given.turned_from is not None:
            o_position = tl.maximum(tl.load(given.turned_from + i_owner), 0) + o_new
            o_position = tl.minimum(o_position, positions - 1)
        b_k = load_rotated(
            rows, o_position, in_rows, given, k_strides.column, HEAD_DIM, BLOCK_D, ROTARY,
            INTERLEAVED,
        )  # fmt: skip
    else:
        b_k = load_columns(rows, in_rows, k_strides.column, HEAD_DIM, BLOCK_D)
    to = k_cache + o_block * k_cache_strides.batch + o_place * k_cache_strides.row
    put(b_k, to, k_cache_strides, given.k_scale, i_owner, o_head, in_rows, HEAD_DIM, FP8)
    v += i_b.to(tl.int64) * v_strides.batch
    rows = v + o_token * v_strides.row + o_head * v_strides.head
    b_v = load_columns(rows, in_rows, v_strides.column, HEAD_DIM_V, BLOCK_DV)
    to = v_cache + o_block * v_cache_strides.batch + o_place * v_cache_strides.row
    put(b_v, to, v_cache_strides, given.v_scale, i_owner, o_head, in_rows, HEAD_DIM_V, FP8)


@triton.jit
def put(b_x, to, strides, scale, i_b, o_head, in_rows, WIDTH: tl.constexpr, FP8: tl.constexpr):
    """Store rows of the heads ``o_head`` where ``to`` says; in e4m3 bits if FP8, divided by the
    scales of sequence ``i_b``, or of one a row."""
    o_d = tl.arange(0, b_x.shape[1])
    mask = in_rows[:, None] & (o_d < WIDTH)[None, :]
    to += o_head * strides.head
    if FP8 != "":
        b_x = b_x.to(tl.float32)
        if scale is not None:
            b_scale = head_scale(scale, i_b, o_head)
            # Whatever is stored is read as 0 where it is 0, but for the NaN that 0 / 0 would be.
            b_x = b_x / tl.where(b_scale == 0.0, 1.0, b_scale)[:, None]
        b_x = narrowed(b_x, FP8 == "fnuz")
    to = to[:, None] + o_d[None, :] * strides.column
    tl.store(to, b_x.to(to.dtype.element_ty), mask=mask)


def launch(
    k: torch.Tensor,
    v: torch.Tensor,
    cache: Cache,
    rotary: Rotary | None,
    cu_new: torch.Tensor | None = None,
) -> None:
    """Write ``k`` and ``v`` behind what ``cache`` holds, for checked arguments. With ``cu_new``
    both are (1, tokens, ...)."""
    batch, tokens, kv_heads, head_dim = k.shape
    head_dim_v = v.shape[3]
    # By the bits on every target: few values are written.
    way = e4m3.way(cache.k.dtype, targets.INTERPRETER)
    k_cache, v_cache = cache.bits if way else (cache.k, cache.v)
    more = given(cache, rotary, cu_new=cu_new)
    with targets.on_device_of(k, "k"):
        noted(kvcache_append, (triton.cdiv(tokens * kv_heads, ROWS.value) * batch,))(
            k=k,
            v=v,
            k_cache=k_cache,
            v_cache=v_cache,
            given=more,
            length=cache.length,
            strides=Layout.of(k=k, v=v),
            cache_strides=Layout.of(k=cache.k, v=cache.v),
            positions=None if rotary is None or rotary.first is None else rotary.positions,
            kv_heads=kv_heads,
            tokens=tokens,
            batch=None if cu_new is None else cu_new.numel() - 1,
            capacity=cache.capacity,
            page_size=cache.page_size,
            HEAD_DIM=head_dim,
            HEAD_DIM_V=head_dim_v,
            BLOCK_D=padded(head_dim),
            BLOCK_DV=padded(head_dim_v),
            ROTARY=rotary.columns if rotary else 0,
            INTERLEAVED=rotary is not None and rotary.interleaved,
            FP8=way,
            EARLY=targets.current().overlaps_launches,
            FAR=any(spans(one, 0) for one in (k, v, cache.k, cache.v)),
            num_warps=4,
        )
