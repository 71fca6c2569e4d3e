"""Where the keys and values of each sequence are, contiguous or in pages, and how many; where its
queries are."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import triton
import triton.language as tl

from kernels.runtime.addressing import near


@dataclass(frozen=True)
class Cache:
    """``seqlens`` keys (on the device), or ``length`` of each sequence, in the row ``batch_idx`` of
    the cache, or in the pages that this row of ``table`` names. What is stored is the value divided
    by its scale, fp32 (), (kv_heads,) or (batch, kv_heads); none where the cache is not fp8. The
    first ``leftpad`` of the keys, on the device, are no sequence's."""

    k: torch.Tensor
    v: torch.Tensor
    seqlens: torch.Tensor | None
    length: int
    batch_idx: torch.Tensor | None
    table: torch.Tensor | None
    k_scale: torch.Tensor | None
    v_scale: torch.Tensor | None
    leftpad: torch.Tensor | None = None

    def near(self) -> Cache:
        """Its table and scales such that 32 bits lead to each of their entries."""
        k_scale, v_scale = near(self.k_scale), near(self.v_scale)
        return replace(self, table=near(self.table), k_scale=k_scale, v_scale=v_scale)

    @property
    def page_size(self) -> int:
        return 0 if self.table is None else self.k.shape[1]

    @property
    def capacity(self) -> int:
        """Keys a sequence has room for."""
        return self.k.shape[1] * (1 if self.table is None else self.table.shape[1])

    @property
    def bits(self) -> tuple[torch.Tensor, torch.Tensor]:
        """An fp8 cache as bytes."""
        return self.k.view(torch.uint8), self.v.view(torch.uint8)

    @property
    def has_pairs(self) -> bool:
        """Whether two columns of an fp8 cache at a time can be read, and none needs a mask."""
        return all(
            one.stride(3) == 1
            and one.shape[3] in (16, 32, 64, 128, 256)
            and not any(stride % 2 for stride in one.stride()[:3])
            and one.storage_offset() % 2 == 0
            and one.data_ptr() % 2 == 0
            for one in (self.k, self.v)
        )

    @property
    def pairs(self) -> tuple[torch.Tensor, torch.Tensor]:
        """An fp8 cache as integers of 16 bits."""
        return self.k.view(torch.int16), self.v.view(torch.int16)


@triton.jit
def keys_in_cache(seqlens, length, i_b, capacity):
    """How many keys the cache of sequence ``i_b`` holds before this call's are appended."""
    if seqlens is not None:
        length = tl.load(seqlens.at + i_b.to(tl.int64) * seqlens.row)
    # A length that does not fit must not lead outside the cache.
    return tl.minimum(tl.maximum(length, 0), capacity)


@triton.jit
def row_in_cache(batch_idx, i_b):
    """Of the cache, or of its table of pages: the row of sequence ``i_b``."""
    if batch_idx is not None:
        i_b = tl.load(batch_idx.at + tl.cast(i_b, tl.int64) * batch_idx.row)
    return i_b


@triton.jit
def head_scale(scale, i_b, i_kv):
    """Of one key head of sequence ``i_b``, which may be a block of both."""
    return tl.load(scale.at + tl.cast(i_b, tl.int64) * scale.row + i_kv * scale.column)


@triton.jit
def keys_before(leftpad, i_b):
    """How many rows at the front of the cache of sequence ``i_b`` are not its own."""
    return tl.maximum(tl.load(leftpad.at + i_b.to(tl.int64) * leftpad.row), 0)


@triton.jit
def owners(cu, batch, o_token, BLOCK: tl.constexpr):
    """The sequence of each of packed tokens: as many as end at it or before it. Of what lies behind
    the last it is ``batch``."""
    owner = tl.zeros_like(o_token)
    for i in range(0, batch, BLOCK):
        o_b = i + tl.arange(0, BLOCK)
        b_end = tl.load(cu + 1 + o_b, mask=o_b < batch, other=0x7FFFFFFF)
        owner += tl.sum((b_end[None, :] <= o_token[:, None]).to(tl.int32), 1)
    return owner


@triton.jit
def chunk_of(position, first, chunk):
    """The first key of the chunk that key ``position`` is in, where chunks are counted from key
    ``first`` on; beyond all keys where that is behind it."""
    return tl.where(position < first, 1 << 30, (position - first) // chunk * chunk + first)


@triton.jit
def queries_of(cu_q, i_b, seqlen_q):
    """The first query of sequence ``i_b``, how many it has, and of how many, ``seqlen_q`` at most,
    there are outputs: the last of all stands at the last key."""
    first, n_all = 0, seqlen_q
    if cu_q is not None:
        first = tl.load(cu_q + i_b)
        n_all = tl.maximum(tl.load(cu_q + i_b + 1) - first, 0)
        seqlen_q = tl.minimum(n_all, seqlen_q)
    return first, n_all, seqlen_q


@triton.jit
def row_of(cu_q, i_b, first, strides):
    """How far the first query of sequence ``i_b`` is, or its output."""
    return i_b.to(tl.int64) * strides.batch if cu_q is None else first.to(tl.int64) * strides.row


@triton.jit
def parts_of(i_tile, i_s, splits, n_rows):
    """How many rows of parts lie before part ``i_s`` of a tile."""
    return (i_tile * splits + i_s).to(tl.int64) * n_rows


@triton.jit
def pages(table, stride_tp, i_n, o_end, o_n, PAGE_SIZE: tl.constexpr, BLOCK_N: tl.constexpr):
    """The page of a block of keys from ``i_n`` on, or of each key where some lie in two pages."""
    if PAGE_SIZE % BLOCK_N == 0:
        return tl.load(table + i_n // PAGE_SIZE * stride_tp, mask=i_n < o_end, other=0)
    else:
        o_key = i_n + o_n
        return tl.load(table + o_key // PAGE_SIZE * stride_tp, mask=o_key < o_end, other=0)


@triton.jit
def lead(b_x, TURNED: tl.constexpr):
    """Along the first axis of a tile, or TURNED along the second."""
    return b_x[None, :] if TURNED else b_x[:, None]


@triton.jit
def trail(b_x, TURNED: tl.constexpr):
    """Along the second axis of a tile, or TURNED along the first."""
    return b_x[:, None] if TURNED else b_x[None, :]
