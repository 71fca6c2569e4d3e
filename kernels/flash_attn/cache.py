"""What decoding in FlashAttention's names does before ours: a cache that is too full is an error,
and packed keys become pages."""

from __future__ import annotations

from typing import Any

import torch

from kernels.attention.api import kvcache
from kernels.runtime import autograd

NO_GRADIENT = (
    "expected no gradient of attention over a cache, which has only a forward pass, got a "
    "backward pass; call it within torch.no_grad(), or flash_attn_func, which is differentiable"
)


def check_room(
    k_cache: Any, k: Any, seqlens: Any, table: Any, cu_new: Any = None, name: str = "block_table"
) -> None:
    """A ``RuntimeError``, as FlashAttention raises, where a sequence has more keys than the cache
    has room for. Reading lengths waits for the device; within a CUDA graph nothing is read, and
    such keys are not written."""
    if not isinstance(k_cache, torch.Tensor) or k_cache.dim() != 4 or seqlens is None:
        return  # ours says so
    new: Any = 0
    if isinstance(k, torch.Tensor):
        new = k.shape[1] if cu_new is None else cu_new.diff()
    if not (_readable(seqlens) and _readable(new)):
        return
    total = seqlens + new
    if isinstance(total, torch.Tensor):
        total = int(total.max())
    pages = isinstance(table, torch.Tensor)
    room = k_cache.shape[1] * (table.shape[-1] if pages else 1)
    if total > room:
        what, remedy = ("k_cache", "rows") if not pages else (name, "pages")
        raise RuntimeError(
            f"{what}: expected room for {total} keys, as cache_seqlens and new keys ask for, got "
            f"{room}; give each sequence more {remedy}"
        )


def _readable(lengths: Any) -> bool:
    if not isinstance(lengths, torch.Tensor):
        return True
    if torch.compiler.is_compiling() or lengths.is_meta or type(lengths) is not torch.Tensor:
        return False
    if not lengths.numel():
        return False
    return not (lengths.is_cuda and torch.cuda.is_current_stream_capturing())


def rows_as_pages(
    k: torch.Tensor, v: torch.Tensor, cu_k: torch.Tensor, max_k: int, used_k: torch.Tensor | None
) -> dict[str, Any]:
    """Packed keys as ``flash_attention_kvcache`` takes them: each row is a page of its own."""
    lengths = cu_k.diff()
    if used_k is not None:
        lengths = lengths.minimum(used_k)
    if not len(k) and not len(v):  # a cache has a page at least; here nobody reads it
        k, v = (one.new_zeros(1, *one.shape[1:]) for one in (k, v))
    places = cu_k[:-1, None] + torch.arange(max(max_k, 1), device=cu_k.device)
    return {
        "k_cache": k.unsqueeze(1),
        "v_cache": v.unsqueeze(1),
        "block_table": places.clamp(max=len(k) - 1).int(),
        "cache_seqlens": lengths.int(),
    }


def used_as_sequences(
    cu_q: torch.Tensor, used_q: torch.Tensor, pages: dict[str, Any]
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Of packed queries of which some are used: these, and the others as sequences without keys."""
    starts = cu_q[:-1]
    ends = torch.minimum(starts + used_q.clamp(min=0), cu_q[1:])
    lengths = pages["cache_seqlens"]
    changed = {
        "cache_seqlens": torch.stack((lengths, torch.zeros_like(lengths)), 1).flatten(),
        "block_table": pages["block_table"].repeat_interleave(2, 0),
    }
    bounds = torch.cat((torch.stack((starts, ends), 1).flatten(), cu_q[-1:]))
    return bounds, pages | changed


def attend(
    q: Any, k_cache: Any, v_cache: Any, k: Any = None, v: Any = None, qv: Any = None, **options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """``flash_attention_kvcache``, whose outputs say that they have no gradients where those are
    requested."""
    named = {"q": q, "k_cache": k_cache, "v_cache": v_cache, "k": k, "v": v, "qv": qv}

    def run(*tensors: Any) -> Any:
        given = dict(zip(named, tensors, strict=True))
        return kvcache.flash_attention_kvcache(**given, return_lse=True, **options)

    found: tuple[torch.Tensor, torch.Tensor]
    found = autograd.forward_only(run, NO_GRADIENT, named)
    return found
