"""Sequences of one length."""

from __future__ import annotations

from typing import Any

import torch

from kernels.attention.api import dense
from kernels.flash_attn import arguments, probabilities
from kernels.runtime import checks

Result = torch.Tensor | tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Window = tuple[int, int] | torch.Tensor


@arguments.renamed(return_lse="return_attn_probs")
def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Result:
    """Attention, as FlashAttention's function of this name.

    Args:
        q: (batch, seqlen_q, heads, head_dim), fp16, bf16, or fp32, too.
        k: (batch, seqlen_k, kv_heads, head_dim).
        v: (batch, seqlen_k, kv_heads, head_dim_v).
        dropout_p: The share of the weights that is dropped, by a seed from torch's generator.
        softmax_scale: 1 / sqrt(head_dim) by default.
        causal: Aligned to the bottom right.
        window_size: (left, right), -1 for all; also as a tensor of two.
        softcap: Above 0 a score becomes softcap * tanh(score / softcap).
        alibi_slopes: (heads,) or (batch, heads).
        deterministic: Gradients always are the same bits at every run.
        return_attn_probs: Return the log-sum-exp and the weights, too.

    Returns:
        (batch, seqlen_q, heads, head_dim_v). With ``return_attn_probs`` also the log-sum-exp,
        (batch, heads, seqlen_q), and the weights, (batch, heads, seqlen_q, seqlen_k), below 0 where
        dropout dropped them; without dropout these have no element, as in FlashAttention.

    Raises:
        TypeError: An argument is no tensor or no number.
        ValueError: A shape, dtype, device or value does not fit.
        NotImplementedError: Forward-mode differentiation.

    Examples:
        >>> import torch
        >>> from kernels.flash_attn import flash_attn_func
        >>> q, k, v = torch.randn(3, 1, 64, 2, 32).unbind()
        >>> flash_attn_func(q, k, v, causal=True).shape
        torch.Size([1, 64, 2, 32])
    """
    checks.flag("deterministic", deterministic)
    options = arguments.of_scores(softmax_scale, causal, window_size, softcap)
    options["alibi_slopes"] = alibi_slopes
    if not checks.flag("return_attn_probs", return_attn_probs):
        found: Any = dense.flash_attention(q, k, v, dropout_p=dropout_p, **options)
        return found
    dropout = arguments.dropout(q, dropout_p)
    out, lse = dense.flash_attention(q, k, v, return_lse=True, **dropout, **options)
    if dropout["dropout_seed"] is None:
        return out, lse, q.new_empty(0)
    with torch.no_grad():
        given = (q.detach(), k.detach(), options, dropout)
        weights = probabilities.of_batch(dense.flash_attention, *given)
    return out, lse, weights


def flash_attn_qkvpacked_func(
    qkv: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Result:
    """``flash_attn_func`` of one tensor.

    Args:
        qkv: (batch, seqlen, 3, heads, head_dim).
        dropout_p: As in ``flash_attn_func``, like all that follow.
        softmax_scale: As there.
        causal: As there.
        window_size: As there.
        softcap: As there.
        alibi_slopes: As there.
        deterministic: As there.
        return_attn_probs: As there.

    Returns:
        What ``flash_attn_func`` returns.

    Examples:
        >>> import torch
        >>> from kernels.flash_attn import flash_attn_qkvpacked_func
        >>> flash_attn_qkvpacked_func(torch.randn(1, 64, 3, 2, 32)).shape
        torch.Size([1, 64, 2, 32])
    """
    q, k, v = arguments.packed("qkv", qkv, 3, 5)
    options = (window_size, softcap, alibi_slopes, deterministic, return_attn_probs)
    return flash_attn_func(q, k, v, dropout_p, softmax_scale, causal, *options)


def flash_attn_kvpacked_func(
    q: torch.Tensor,
    kv: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Result:
    """``flash_attn_func`` of keys and values in one tensor.

    Args:
        q: (batch, seqlen_q, heads, head_dim).
        kv: (batch, seqlen_k, 2, kv_heads, head_dim).
        dropout_p: As in ``flash_attn_func``, like all that follow.
        softmax_scale: As there.
        causal: As there.
        window_size: As there.
        softcap: As there.
        alibi_slopes: As there.
        deterministic: As there.
        return_attn_probs: As there.

    Returns:
        What ``flash_attn_func`` returns.

    Examples:
        >>> import torch
        >>> from kernels.flash_attn import flash_attn_kvpacked_func
        >>> flash_attn_kvpacked_func(torch.randn(1, 9, 4, 32), torch.randn(1, 64, 2, 2, 32)).shape
        torch.Size([1, 9, 4, 32])
    """
    k, v = arguments.packed("kv", kv, 2, 5)
    options = (window_size, softcap, alibi_slopes, deterministic, return_attn_probs)
    return flash_attn_func(q, k, v, dropout_p, softmax_scale, causal, *options)
