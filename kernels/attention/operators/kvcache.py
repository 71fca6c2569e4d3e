"""Decoding over a key-value cache as operators torch knows: one reads the cache, one appends."""

from __future__ import annotations

from typing import Any

import torch

from kernels.attention.common.packed.tail import clear
from kernels.attention.decode import append as kvcache_append
from kernels.attention.decode import launch as kvcache_launch
from kernels.attention.decode.cache import Cache
from kernels.attention.decode.rotary import Rotary
from kernels.runtime import checks
from kernels.runtime.addressing import near
from kernels.runtime.launch import prepared

from .outputs import unwritten


@prepared
def _attend(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    seqlens: torch.Tensor | None,
    length: int,
    batch_idx: torch.Tensor | None,
    table: torch.Tensor | None,
    k_scale: torch.Tensor | None,
    v_scale: torch.Tensor | None,
    added: int,
    cos: torch.Tensor | None,
    sin: torch.Tensor | None,
    interleaved: bool,
    causal: bool,
    right: int,
    left: int | None,
    scale: float,
    softcap: float | None,
    slopes: torch.Tensor | None,
    sinks: torch.Tensor | None,
    num_splits: int,
    cu_q: torch.Tensor | None = None,
    max_q: int = 0,
    leftpad: torch.Tensor | None = None,
    cu_new: torch.Tensor | None = None,
    chunk: int | None = None,
    qv: torch.Tensor | None = None,
    turned_from: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, log-sum-exp) for checked arguments."""
    out, lse = unwritten(q, k_cache, v_cache)
    if cu_q is not None and out.numel():
        clear(out, cu_q, lse=lse)
    if out.numel() and (cu_q is None or (max_q and cu_q.numel() > 1)):
        packed = cu_q is not None
        where = (seqlens, length, batch_idx, table)
        cache = Cache(k_cache, v_cache, *where, k_scale, v_scale, leftpad)
        kvcache_launch.launch(
            q.unsqueeze(0) if packed else q,
            cache.near(),
            out.unsqueeze(0) if packed else out,
            lse,
            kvcache_launch.Decoding(
                causal,
                right,
                left,
                scale,
                added,
                Rotary.of(cos, sin, interleaved, turned_from),
                softcap,
                near(slopes),
                sinks,
                num_splits,
                cu_q,
                max_q,
                cu_new,
                chunk,
                qv.unsqueeze(0) if packed and qv is not None else qv,
            ),
        )
    return out, lse


@prepared
def _append(
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    seqlens: torch.Tensor | None,
    length: int,
    batch_idx: torch.Tensor | None,
    table: torch.Tensor | None,
    k_scale: torch.Tensor | None,
    v_scale: torch.Tensor | None,
    cos: torch.Tensor | None,
    sin: torch.Tensor | None,
    interleaved: bool,
    cu_new: torch.Tensor | None = None,
    turned_from: torch.Tensor | None = None,
) -> None:
    """Write k, turned to its positions, and v behind what the caches hold: (batch, seqlen_new,
    kv_heads, ...), or packed (tokens, kv_heads, ...)."""
    if k.numel() and (cu_new is None or cu_new.numel() > 1):
        cache = Cache(k_cache, v_cache, seqlens, length, batch_idx, table, k_scale, v_scale)
        k, v = (k, v) if cu_new is None else (k.unsqueeze(0), v.unsqueeze(0))
        rotary = Rotary.of(cos, sin, interleaved, turned_from)
        kvcache_append.launch(k, v, cache.near(), rotary, cu_new)


attend_op = torch.library.custom_op("warpwatch::flash_attention_kvcache", mutates_args=())(_attend)
attend_op.register_fake(unwritten)
append_op = torch.library.custom_op(
    "warpwatch::kvcache_append", mutates_args=("k_cache", "v_cache")
)(_append)
append_op.register_fake(lambda *_: None)


def attend(q: torch.Tensor, *arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The operator where torch has to know of it, else the launch itself, which saves the
    dispatcher's time on the host."""
    if checks.traced(q, *arguments):
        return attend_op(q, *arguments)
    return _attend(q, *arguments)


def append(
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    *arguments: Any,
) -> None:
    """As ``attend``."""
    if checks.traced(k, v, k_cache, v_cache, *arguments):
        append_op(k, v, k_cache, v_cache, *arguments)
        return
    checks.written(k_cache, v_cache)
    _append(k, v, k_cache, v_cache, *arguments)
