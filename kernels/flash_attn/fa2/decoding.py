"""Decoding over a key-value cache."""

from __future__ import annotations

import torch

from kernels.flash_attn import arguments, cache
from kernels.runtime import checks

Window = tuple[int, int] | torch.Tensor


@arguments.renamed(return_lse="return_softmax_lse")
def flash_attn_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k: torch.Tensor | None = None,
    v: torch.Tensor | None = None,
    rotary_cos: torch.Tensor | None = None,
    rotary_sin: torch.Tensor | None = None,
    cache_seqlens: torch.Tensor | int | None = None,
    cache_batch_idx: torch.Tensor | None = None,
    cache_leftpad: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: torch.Tensor | None = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Decoding over a key-value cache, as FlashAttention's function of this name.

    ``kernels.flash_attention_kvcache`` says each argument in full. A cache that has no room for the
    new keys is an error, for which the lengths are read; within a CUDA graph they are not.

    Args:
        q: (batch, seqlen_q, heads, head_dim).
        k_cache: (cache_batch, seqlen_cache, kv_heads, head_dim), or pages.
        v_cache: The same of the values.
        k: New keys, (batch, seqlen_new, kv_heads, head_dim), written in place.
        v: New values.
        rotary_cos: (positions, rotary_dim / 2).
        rotary_sin: The same of the sines.
        cache_seqlens: Keys in the cache, int32 (batch,) or an int.
        cache_batch_idx: int32 (batch,), rows of the cache, or of ``block_table``.
        cache_leftpad: int32 (batch,), rows at the front that are not a sequence's own.
        block_table: int32 (batch, max_pages), pages of any size.
        softmax_scale: As in ``flash_attn_func``.
        causal: As there.
        window_size: As there.
        softcap: As there.
        rotary_interleaved: Pair columns 2i and 2i + 1, else i and i + rotary_dim / 2.
        alibi_slopes: As there.
        num_splits: Into how many parts the keys are split, 0 to have it chosen.
        return_softmax_lse: Return the log-sum-exp, too.

    Returns:
        (batch, seqlen_q, heads, head_dim_v), and with ``return_softmax_lse`` (batch, heads,
        seqlen_q).

    Raises:
        RuntimeError: The cache has no room for the new keys.
        ValueError: A shape, dtype, device or value does not fit.

    Examples:
        >>> import torch
        >>> from kernels.flash_attn import flash_attn_with_kvcache
        >>> k_cache, v_cache = torch.randn(2, 1, 64, 2, 32).unbind()
        >>> q, k, v = torch.randn(3, 1, 1, 2, 32).unbind()
        >>> flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=40).shape
        torch.Size([1, 1, 2, 32])
    """
    cache.check_room(k_cache, k, cache_seqlens, block_table)
    out, lse = cache.attend(
        q,
        k_cache,
        v_cache,
        k,
        v,
        rotary_cos=rotary_cos,
        rotary_sin=rotary_sin,
        cache_seqlens=cache_seqlens,
        cache_batch_idx=cache_batch_idx,
        cache_leftpad=cache_leftpad,
        block_table=block_table,
        rotary_interleaved=rotary_interleaved,
        num_splits=num_splits,
        alibi_slopes=alibi_slopes,
        **arguments.of_scores(softmax_scale, causal, window_size, softcap),
    )
    return (out, lse) if checks.flag("return_softmax_lse", return_softmax_lse) else out
