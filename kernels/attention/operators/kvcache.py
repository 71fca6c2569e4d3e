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
from .schemas import IN_SEQUENCES, operator

WHERE = "Tensor? seqlens, SymInt length, Tensor? batch_idx, Tensor? table"
SCALES = "Tensor? k_scale, Tensor? v_scale"
TURNED = "Tensor? cos, Tensor? sin, bool interleaved"
ASKED = "float? softcap, Tensor? slopes, Tensor? sinks, SymInt num_splits"
# What stands last and may be left out.
MORE = {
    "cu_q": "Tensor? cu_q=None",
    "max_q": "SymInt max_q=0",
    "leftpad": "Tensor? leftpad=None",
    "cu_new": "Tensor? cu_new=None",
    "chunk": "SymInt? chunk=None",
    "qv": "Tensor? qv=None",
    "turned_from": "Tensor? turned_from=None",
}


@prepared
def _attend(
    q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, *arguments: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, log-sum-exp) for checked arguments."""
    given: dict[str, Any] = dict.fromkeys(MORE) | dict(zip(MORE, arguments[18:], strict=False))
    cu_q, max_q, leftpad, cu_new, chunk, qv, turned_from = given.values()
    added, *turned = arguments[6:10]
    *mask, softcap, slopes, sinks, num_splits = arguments[10:18]
    out, lse = unwritten(q, k_cache, v_cache)
    found = out
    if cu_q is not None and out.numel():
        clear(out, cu_q, lse=lse)
    if out.numel() and (cu_q is None or (max_q and cu_q.numel() > 1)):
        where, angles = (*arguments[:6], leftpad), (*turned, turned_from)
        cache = Cache(k_cache, v_cache, *where)
        if cu_q is not None:
            q, out = q.unsqueeze(0), out.unsqueeze(0)
            qv = None if qv is None else qv.unsqueeze(0)
        asked = (*mask, added, Rotary.of(*angles), softcap, near(slopes), sinks, num_splits)
        packed = (cu_q, max_q or 0, cu_new, chunk, qv)
        decoding = kvcache_launch.Decoding(*(*asked, *packed))
        kvcache_launch.launch(q, cache.near(), out, lse, decoding)
    return found, lse


@prepared
def _append(
    k: torch.Tensor, v: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, *others: Any
) -> None:
    """Write k, turned to its positions, and v behind what the caches hold: (batch, seqlen_new,
    kv_heads, ...), or packed (tokens, kv_heads, ...)."""
    cu_new, turned_from = (*others[9:], None, None)[:2]
    angles = (*others[6:9], turned_from)
    if k.numel() and (cu_new is None or cu_new.numel() > 1):
        cache = Cache(k_cache, v_cache, *others[:6])
        k, v = (k, v) if cu_new is None else (k.unsqueeze(0), v.unsqueeze(0))
        kvcache_append.launch(k, v, cache.near(), Rotary.of(*angles), cu_new)


attend_op = operator(
    "warpwatch::flash_attention_kvcache",
    *("Tensor q, Tensor k_cache, Tensor v_cache", WHERE, SCALES, "SymInt added", TURNED),
    *(IN_SEQUENCES, ASKED, *MORE.values()),
)(_attend)
attend_op.register_fake(unwritten)
append_op = operator(
    "warpwatch::kvcache_append",
    *("Tensor k, Tensor v, Tensor(a2!) k_cache, Tensor(a3!) v_cache", WHERE, SCALES, TURNED),
    *(MORE["cu_new"], MORE["turned_from"]),
    returns="()",
    mutates=("k_cache", "v_cache"),
)(_append)
append_op.register_fake(lambda *_: None)


def attend(q: torch.Tensor, *arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The operator where torch has to know of it, else the launch itself, which saves the
    dispatcher's time on the host."""
    if checks.traced(q, *arguments):
        return attend_op(q, *arguments)
    return _attend(q, *arguments)


def append(
    k: torch.Tensor, v: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, *others: Any
) -> None:
    """As ``attend``."""
    if checks.traced(k, v, k_cache, v_cache, *others):
        append_op(k, v, k_cache, v_cache, *others)
        return
    checks.written(k_cache, v_cache)
    _append(k, v, k_cache, v_cache, *others)
