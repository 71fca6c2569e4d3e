"""Decoding over a key-value cache, and what belongs to it."""

from __future__ import annotations

from typing import Any

import torch

from kernels.flash_attn import arguments, cache
from kernels.runtime import checks

Result = torch.Tensor | tuple[torch.Tensor, torch.Tensor]
Window = tuple[int, int] | torch.Tensor


def flash_attn_combine(
    out_partial: torch.Tensor,
    lse_partial: torch.Tensor,
    out: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The attention to all keys from that to parts of them.

    Args:
        out_partial: fp32 (parts, batch, seqlen, heads, head_dim).
        lse_partial: fp32 (parts, batch, seqlen, heads), their log-sum-exps.
        out: What the result is written to, if it is given.
        out_dtype: Of the result; that of ``out_partial`` by default.

    Returns:
        (batch, seqlen, heads, head_dim) and its log-sum-exp, (batch, seqlen, heads).

    Examples:
        >>> import torch
        >>> from kernels.flash_attn.fa3 import flash_attn_combine
        >>> out, lse = flash_attn_combine(torch.ones(2, 1, 3, 4, 8), torch.zeros(2, 1, 3, 4))
        >>> out.mean().item(), lse.shape
        (1.0, torch.Size([1, 3, 4]))
    """
    checks.tensor("out_partial", out_partial, rank=5, layout="(parts, batch, seqlen, heads, dim)")
    checks.tensor("lse_partial", lse_partial, rank=4, layout="(parts, batch, seqlen, heads)")
    if tuple(lse_partial.shape) != tuple(out_partial.shape[:-1]):
        raise ValueError(
            f"lse_partial: expected shape {tuple(out_partial.shape[:-1])} as out_partial has, got "
            f"{tuple(lse_partial.shape)}"
        )
    lse = torch.logsumexp(lse_partial.float(), 0)
    weights = torch.exp(lse_partial.float() - torch.where(lse.isinf(), 0.0, lse))
    found = (weights[..., None] * out_partial.float()).sum(0)
    if out is not None:
        return out.copy_(found), lse
    return found.to(out_dtype or out_partial.dtype), lse


@arguments.renamed(**{**arguments.OF_FA3, "return_lse": "return_softmax_lse"})
def flash_attn_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k: torch.Tensor | None = None,
    v: torch.Tensor | None = None,
    qv: torch.Tensor | None = None,
    rotary_cos: torch.Tensor | None = None,
    rotary_sin: torch.Tensor | None = None,
    cache_seqlens: torch.Tensor | int | None = None,
    cache_batch_idx: torch.Tensor | None = None,
    cache_leftpad: torch.Tensor | None = None,
    page_table: torch.Tensor | None = None,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_k_new: torch.Tensor | None = None,
    max_seqlen_q: int | None = None,
    rotary_seqlens: torch.Tensor | None = None,
    q_descale: torch.Tensor | None = None,
    k_descale: torch.Tensor | None = None,
    v_descale: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    scheduler_metadata: torch.Tensor | None = None,
    num_splits: int = 0,
    pack_gqa: bool | None = None,
    sm_margin: int = 0,
    return_softmax_lse: bool = False,
) -> Result:
    """Decoding over a key-value cache, as FlashAttention-3's function of this name.

    ``kernels.flash_attention_kvcache`` says each argument in full. A cache that has no room for the
    new keys is an error, for which the lengths are read; within a CUDA graph they are not.

    Args:
        q: (batch, seqlen_q, heads, head_dim), or packed with ``cu_seqlens_q``; e4m3, too.
        k_cache: (cache_batch, seqlen_cache, kv_heads, head_dim), or pages.
        v_cache: The same of the values, whose head dim is up to 512.
        k: New keys, written in place.
        v: New values.
        qv: As in ``flash_attn_func``.
        rotary_cos: (positions, rotary_dim / 2).
        rotary_sin: The same of the sines.
        cache_seqlens: Keys in the cache, int32 (batch,) or an int.
        cache_batch_idx: int32 (batch,), rows of the cache, or of ``page_table``.
        cache_leftpad: int32 (batch,), rows at the front that are not a sequence's own.
        page_table: int32 (batch, max_pages), pages of any size.
        cu_seqlens_q: int32 (batch + 1,), of packed queries.
        cu_seqlens_k_new: int32 (batch + 1,), of packed new keys.
        max_seqlen_q: The most queries of a sequence, with ``cu_seqlens_q``.
        rotary_seqlens: int32 (batch,), the first position of new tokens; ``cache_seqlens`` by
            default.
        q_descale: Of e4m3 only, fp32 (batch, kv_heads), like the next two.
        k_descale: Of keys.
        v_descale: Of values.
        softmax_scale: As in ``flash_attn_func``.
        causal: As there.
        window_size: As there.
        attention_chunk: As there.
        softcap: As there.
        rotary_interleaved: Pair columns 2i and 2i + 1, else i and i + rotary_dim / 2.
        scheduler_metadata: Accepted; it changes nothing here.
        num_splits: Into how many parts the keys are split, 0 to have it chosen.
        pack_gqa: Accepted; it changes nothing here.
        sm_margin: Accepted; it changes nothing here.
        return_softmax_lse: Return the log-sum-exp, too.

    Returns:
        The shape of q with the values' head dim; with ``return_softmax_lse`` also the log-sum-exp,
        (batch, heads, seqlen_q), or packed (heads, tokens).

    Raises:
        RuntimeError: The cache has no room for the new keys.
        ValueError: A shape, dtype, device or value does not fit.

    Examples:
        >>> import torch
        >>> from kernels.flash_attn.fa3 import flash_attn_with_kvcache
        >>> k_cache, v_cache = torch.randn(2, 1, 64, 2, 32).unbind()
        >>> q, k, v = torch.randn(3, 1, 1, 2, 32).unbind()
        >>> flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=40).shape
        torch.Size([1, 1, 2, 32])
    """
    cache.check_room(k_cache, k, cache_seqlens, page_table, cu_seqlens_k_new, "page_table")
    options = arguments.of_scores(softmax_scale, causal, window_size, softcap)
    options["attention_chunk"] = attention_chunk
    rotary_cos, rotary_sin = (
        one.bfloat16() if isinstance(one, torch.Tensor) and one.dtype.itemsize == 1 else one
        for one in (rotary_cos, rotary_sin)
    )
    out, lse = cache.attend(
        q,
        k_cache,
        v_cache,
        k,
        v,
        qv,
        rotary_cos=rotary_cos,
        rotary_sin=rotary_sin,
        cache_seqlens=cache_seqlens,
        cache_batch_idx=cache_batch_idx,
        cache_leftpad=cache_leftpad,
        block_table=page_table,
        cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k_new=cu_seqlens_k_new,
        max_seqlen_q=max_seqlen_q,
        rotary_seqlens=rotary_seqlens,
        q_scale=q_descale,
        k_scale=k_descale,
        v_scale=v_descale,
        rotary_interleaved=rotary_interleaved,
        num_splits=num_splits,
        **options,
    )
    return (out, lse) if checks.flag("return_softmax_lse", return_softmax_lse) else out


def get_scheduler_metadata(*args: Any, **kwargs: Any) -> None:
    """None: nothing is to be prepared before a call.

    Args:
        *args: Whatever FlashAttention-3's function of this name takes.
        **kwargs: The same.

    Returns:
        None, which ``flash_attn_with_kvcache`` takes as ``scheduler_metadata``.

    Examples:
        >>> from kernels.flash_attn.fa3 import get_scheduler_metadata
        >>> get_scheduler_metadata(1, 1, 64, 2, 2, 32, None) is None
        True
    """
