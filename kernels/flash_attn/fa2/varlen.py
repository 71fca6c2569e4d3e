"""Packed sequences."""

from __future__ import annotations

from typing import Any

import torch

from kernels.attention.api import varlen
from kernels.flash_attn import arguments, cache, probabilities
from kernels.runtime import checks

Result = torch.Tensor | tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Window = tuple[int, int] | torch.Tensor


@arguments.renamed(return_lse="return_attn_probs", k_cache="k", v_cache="v")
def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: torch.Tensor | None = None,
) -> Result:
    """``flash_attn_func`` of packed sequences.

    Args:
        q: (tokens_q, heads, head_dim).
        k: (tokens_k, kv_heads, head_dim), or with ``block_table`` pages, (num_pages, page_size,
            kv_heads, head_dim).
        v: The same of the values.
        cu_seqlens_q: int32 (batch + 1,): sequence i is the rows from entry i up to entry i + 1.
        cu_seqlens_k: The same of the keys; of pages their differences are the lengths.
        max_seqlen_q: The longest sequence of queries.
        max_seqlen_k: The longest sequence of keys.
        dropout_p: As in ``flash_attn_func``, like all that follow.
        softmax_scale: As there.
        causal: As there.
        window_size: As there.
        softcap: As there.
        alibi_slopes: As there.
        deterministic: As there.
        return_attn_probs: As there.
        block_table: int32 (batch, max_pages), the pages of each sequence. Without dropout, and
            without gradients.

    Returns:
        (tokens_q, heads, head_dim_v). With ``return_attn_probs`` also the log-sum-exp, (heads,
        tokens_q), and the weights, (batch, heads, max_seqlen_q, max_seqlen_k).

    Raises:
        NotImplementedError: Dropout with pages.

    Examples:
        >>> import torch
        >>> from kernels.flash_attn import flash_attn_varlen_func
        >>> q, k, v = torch.randn(3, 48, 2, 32).unbind()
        >>> at = torch.tensor([0, 16, 48], dtype=torch.int32)
        >>> flash_attn_varlen_func(q, k, v, at, at, 32, 32, causal=True).shape
        torch.Size([48, 2, 32])
    """
    checks.flag("deterministic", deterministic)
    options = arguments.of_scores(softmax_scale, causal, window_size, softcap)
    options["alibi_slopes"] = alibi_slopes
    with_probs = checks.flag("return_attn_probs", return_attn_probs)
    dropout = arguments.dropout(q, dropout_p)
    if block_table is not None:
        if dropout["dropout_seed"] is not None:
            raise NotImplementedError(
                f"dropout_p: expected 0 with block_table, got {dropout_p}; gather the pages into "
                "packed keys"
            )
        checks.tensor("cu_seqlens_k", cu_seqlens_k, rank=1, layout="(batch + 1,)")
        out, lse = cache.attend(
            q,
            k,
            v,
            block_table=block_table,
            cache_seqlens=cu_seqlens_k.diff(),
            cu_seqlens_q=cu_seqlens_q,
            max_seqlen_q=max_seqlen_q,
            **options,
        )
        return (out, lse, q.new_empty(0)) if with_probs else out
    sequences = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    given = {"return_lse": with_probs, **dropout, **options}
    found: Any = varlen.flash_attention_varlen(q, k, v, *sequences, **given)
    if not with_probs:
        return found
    if dropout["dropout_seed"] is None:
        return *found, q.new_empty(0)
    with torch.no_grad():
        whole = (q.detach(), k.detach(), sequences, options, dropout)
        weights = probabilities.of_sequences(varlen.flash_attention_varlen, *whole)
    return *found, weights


def flash_attn_varlen_qkvpacked_func(
    qkv: torch.Tensor,
    cu_seqlens: torch.Tensor,
    max_seqlen: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Result:
    """``flash_attn_varlen_func`` of one tensor.

    Args:
        qkv: (tokens, 3, heads, head_dim).
        cu_seqlens: int32 (batch + 1,), of queries and keys.
        max_seqlen: The longest sequence.
        dropout_p: As in ``flash_attn_func``, like all that follow.
        softmax_scale: As there.
        causal: As there.
        window_size: As there.
        softcap: As there.
        alibi_slopes: As there.
        deterministic: As there.
        return_attn_probs: As there.

    Returns:
        What ``flash_attn_varlen_func`` returns.

    Examples:
        >>> import torch
        >>> from kernels.flash_attn import flash_attn_varlen_qkvpacked_func
        >>> at = torch.tensor([0, 16, 48], dtype=torch.int32)
        >>> flash_attn_varlen_qkvpacked_func(torch.randn(48, 3, 2, 32), at, 32).shape
        torch.Size([48, 2, 32])
    """
    q, k, v = arguments.packed("qkv", qkv, 3, 4)
    sequences = (cu_seqlens, cu_seqlens, max_seqlen, max_seqlen)
    options = (window_size, softcap, alibi_slopes, deterministic, return_attn_probs)
    given = (*sequences, dropout_p, softmax_scale, causal, *options)
    return flash_attn_varlen_func(q, k, v, *given)


def flash_attn_varlen_kvpacked_func(
    q: torch.Tensor,
    kv: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Result:
    """``flash_attn_varlen_func`` of keys and values in one tensor.

    Args:
        q: (tokens_q, heads, head_dim).
        kv: (tokens_k, 2, kv_heads, head_dim).
        cu_seqlens_q: As in ``flash_attn_varlen_func``, like all that follow.
        cu_seqlens_k: As there.
        max_seqlen_q: As there.
        max_seqlen_k: As there.
        dropout_p: As there.
        softmax_scale: As there.
        causal: As there.
        window_size: As there.
        softcap: As there.
        alibi_slopes: As there.
        deterministic: As there.
        return_attn_probs: As there.

    Returns:
        What ``flash_attn_varlen_func`` returns.

    Examples:
        >>> import torch
        >>> from kernels.flash_attn import flash_attn_varlen_kvpacked_func
        >>> at = torch.tensor([0, 16, 48], dtype=torch.int32)
        >>> q, kv = torch.randn(48, 4, 32), torch.randn(48, 2, 2, 32)
        >>> flash_attn_varlen_kvpacked_func(q, kv, at, at, 32, 32).shape
        torch.Size([48, 4, 32])
    """
    k, v = arguments.packed("kv", kv, 2, 4)
    sequences = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    options = (window_size, softcap, alibi_slopes, deterministic, return_attn_probs)
    given = (*sequences, dropout_p, softmax_scale, causal, *options)
    return flash_attn_varlen_func(q, k, v, *given)
