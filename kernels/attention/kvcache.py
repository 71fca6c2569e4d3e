"""Attention of few queries over a key-value cache: what it accepts, and its operator for torch."""

from __future__ import annotations

import math
from typing import Any

import torch

from .. import autocast, checks
from . import interface, kvcache_forward
from .kvcache_configs import MAX_SPLITS
from .kvcache_forward import Cache

LAYOUT = "(batch, seqlen_q, heads, head_dim)"
CACHE_LAYOUT = "(batch, seqlen_cache, kv_heads, head_dim)"
PAGED_LAYOUT = "(num_pages, page_size, kv_heads, head_dim)"


def flash_attention_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    *,
    cache_seqlens: torch.Tensor | int | None = None,
    cache_batch_idx: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    num_splits: int = 0,
    return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Attention of the newest tokens over the keys a cache holds, for decoding; as the
    ``flash_attn_with_kvcache`` of FlashAttention.

    q: (batch, seqlen_q, heads, head_dim), fp16, bf16 or fp32, usually 1 to 16 tokens; more are
    right too. k_cache: (cache_batch, seqlen_cache, kv_heads, head_dim) and v_cache: (cache_batch,
    seqlen_cache, kv_heads, head_dim_v), or with ``block_table`` pages (num_pages, page_size,
    kv_heads, ...), page_size a power of two from 16 on. Any strides. Query head h reads key head
    h // (heads // kv_heads); all that share one are one program's, so that keys are read once.

    ``cache_seqlens``: keys in the cache, int32 (batch,) on the device, or one int for all; all
    of seqlen_cache by default. ``cache_batch_idx``: int32 (batch,), the row of the cache that is
    each sequence's, in place of its own number. ``block_table``: int32 (batch, max_pages), the
    pages of each sequence in order; entries beyond its keys are not read. Neither pages nor rows
    are checked against the cache, which would wait for the GPU; lengths are held within its room.

    ``causal`` and ``window_size`` as in ``flash_attention``, aligned bottom-right: the last query
    sees all keys. No key gives 0, and -inf as log-sum-exp. ``num_splits``: into how many parts the
    keys of a sequence are split, each a program, 0 for a number that fills the device, chosen from
    the shapes alone. Partial results are fp32. ``return_lse`` adds (batch, heads, seqlen_q), fp32.

    Nothing waits for the device, so CUDA graphs can hold it. Not differentiable.
    """
    (q,) = autocast.lowered(q)
    _check(q, k_cache, v_cache, cache_seqlens, cache_batch_idx, block_table, num_splits)
    causal, right, left = interface.limits(0, causal, window_size)
    checks.launchable("q", q)
    scale = 1.0 / math.sqrt(q.shape[3]) if softmax_scale is None else float(softmax_scale)
    rows = k_cache.shape[1] * (1 if block_table is None else block_table.shape[1])
    seqlens = cache_seqlens if isinstance(cache_seqlens, torch.Tensor) else None
    length = cache_seqlens if isinstance(cache_seqlens, int) else rows
    arguments = (
        q,
        k_cache,
        v_cache,
        seqlens,
        length,
        cache_batch_idx,
        block_table,
        causal,
        right,
        left,
        scale,
        num_splits,
    )
    # The launch itself saves the dispatcher's time on the host.
    as_operator = torch.compiler.is_compiling() or type(q) is not torch.Tensor
    out, lse = (flash_attention_kvcache_op if as_operator else _forward)(*arguments)
    return (out, lse) if return_lse else out


@torch.library.custom_op("warpwatch::flash_attention_kvcache", mutates_args=())
def flash_attention_kvcache_op(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    seqlens: torch.Tensor | None,
    length: int,
    batch_idx: torch.Tensor | None,
    table: torch.Tensor | None,
    causal: bool,
    right: int,
    left: int | None,
    scale: float,
    num_splits: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, log-sum-exp) for checked arguments."""
    return _forward(
        q,
        k_cache,
        v_cache,
        seqlens,
        length,
        batch_idx,
        table,
        causal,
        right,
        left,
        scale,
        num_splits,
    )


def _forward(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    seqlens: torch.Tensor | None,
    length: int,
    batch_idx: torch.Tensor | None,
    table: torch.Tensor | None,
    causal: bool,
    right: int,
    left: int | None,
    scale: float,
    num_splits: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    out, lse = _outputs(q, k_cache, v_cache)
    if out.numel():
        kvcache_forward.launch(
            q,
            Cache(k_cache, v_cache, seqlens, length, batch_idx, table),
            out,
            lse,
            causal=causal,
            right=right,
            left=left,
            scale=scale,
            num_splits=num_splits,
        )
    return out, lse


@flash_attention_kvcache_op.register_fake
def _outputs(
    q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, *_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    batch, seqlen_q, heads = q.shape[:3]
    out = torch.empty((batch, seqlen_q, heads, v_cache.shape[3]), dtype=q.dtype, device=q.device)
    return out, torch.empty((batch, heads, seqlen_q), dtype=torch.float32, device=q.device)


def _check(
    q: Any, k: Any, v: Any, seqlens: Any, batch_idx: Any, table: Any, num_splits: Any
) -> None:
    layout = CACHE_LAYOUT if table is None else PAGED_LAYOUT
    for name, value, shape in (("q", q, LAYOUT), ("k_cache", k, layout), ("v_cache", v, layout)):
        checks.tensor(name, value, rank=4, layout=shape)
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        raise NotImplementedError(
            "q: expected no gradient to be asked for, got requires_grad; decode under "
            "torch.no_grad(), or call flash_attention, which is differentiable"
        )
    if table is not None:
        integers("block_table", table, q, rank=2, layout="(batch, max_pages)")
        if k.shape[1] < 16 or k.shape[1] & (k.shape[1] - 1):
            raise ValueError(
                f"k_cache: expected a page_size that is a power of two from 16 on, got "
                f"{k.shape[1]}; layout is {PAGED_LAYOUT}"
            )
        if batch_idx is not None:
            raise ValueError(
                "cache_batch_idx: expected None with block_table, got a tensor; block_table "
                "already names the pages of each sequence"
            )
    if isinstance(seqlens, torch.Tensor):
        integers("cache_seqlens", seqlens, q, rank=1, layout="(batch,)")
    elif seqlens is not None and (not isinstance(seqlens, int) or seqlens < 0):
        raise TypeError(
            "cache_seqlens: expected an int32 tensor (batch,), one int for all or None, got "
            f"{seqlens!r}"
        )
    if batch_idx is not None:
        integers("cache_batch_idx", batch_idx, q, rank=1, layout="(batch,)")
    # One row of the cache stands for each sequence: pages and rows are not the batch's own.
    apart = table is not None or batch_idx is not None
    if apart:
        if not 0 < k.shape[0] == v.shape[0]:
            raise ValueError(
                f"v_cache: expected as many pages or rows as k_cache and at least one, got "
                f"{v.shape[0]} and {k.shape[0]}"
            )
        k, v = (one[:1].expand(q.shape[0], -1, -1, -1) for one in (k, v))
    interface.check(q, k, v, ("q", "k_cache", "v_cache"), layout=layout, head_axis=2)
    if not isinstance(num_splits, int) or not 0 <= num_splits <= MAX_SPLITS:
        raise ValueError(
            f"num_splits: expected 1 to {MAX_SPLITS}, or 0 to have it chosen, got {num_splits!r}"
        )


def integers(name: str, value: Any, q: torch.Tensor, *, rank: int, layout: str) -> None:
    """Of one entry, or row, a sequence of ``q``."""
    checks.tensor(name, value, rank=rank, layout=layout)
    checks.dtype(name, value, (torch.int32,))
    checks.same_device("q", q, **{name: value})
    if value.shape[0] != q.shape[0]:
        raise ValueError(
            f"{name}: expected {q.shape[0]} entries as q has sequences, got {value.shape[0]}"
        )
