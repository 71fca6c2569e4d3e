"""Sequences of one length, and packed ones."""

from __future__ import annotations

from typing import Any

import torch

from kernels.attention.api import dense, kvcache, varlen
from kernels.flash_attn import arguments, cache
from kernels.runtime import autograd, checks

Result = torch.Tensor | tuple[torch.Tensor, torch.Tensor]
Window = tuple[int, int] | torch.Tensor
QV = (
    "expected no gradient of attention with qv, which has only a forward pass, got a backward "
    "pass; call it within torch.no_grad()"
)


@arguments.renamed(**arguments.OF_FA3)
def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    qv: torch.Tensor | None = None,
    q_descale: torch.Tensor | None = None,
    k_descale: torch.Tensor | None = None,
    v_descale: torch.Tensor | None = None,
    window_size: Window = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Result:
    """Attention, as FlashAttention-3's function of this name.

    Args:
        q: (batch, seqlen_q, heads, head_dim), fp16, bf16, fp32, or e4m3 forward only.
        k: (batch, seqlen_k, kv_heads, head_dim).
        v: (batch, seqlen_k, kv_heads, head_dim_v), of head dims up to 512.
        softmax_scale: 1 / sqrt(head_dim) by default, with ``qv`` of both head dims added.
        causal: Aligned to the bottom right.
        qv: (batch, seqlen_q, heads, head_dim_v): a score is q k + qv v. Forward only.
        q_descale: Of e4m3 only, fp32 (batch, kv_heads): what q is multiplied by.
        k_descale: The same of k.
        v_descale: The same of v.
        window_size: (left, right), -1 for all; also as a tensor of two.
        attention_chunk: Keys a chunk has, 0 for no chunks.
        softcap: Above 0 a score becomes softcap * tanh(score / softcap).
        num_splits: Accepted; it changes nothing here.
        pack_gqa: Accepted; it changes nothing here.
        deterministic: Gradients always are the same bits at every run.
        sm_margin: Accepted; it changes nothing here.
        return_attn_probs: Return the log-sum-exp, too.

    Returns:
        (batch, seqlen_q, heads, head_dim_v), of e4m3 in bf16; with ``return_attn_probs`` also the
        log-sum-exp, (batch, heads, seqlen_q).

    Raises:
        TypeError: An argument is no tensor or no number.
        ValueError: A shape, dtype, device or value does not fit.

    Examples:
        >>> import torch
        >>> from kernels.flash_attn.fa3 import flash_attn_func
        >>> q, k, v = torch.randn(3, 1, 64, 2, 32).unbind()
        >>> flash_attn_func(q, k, v, causal=True, attention_chunk=16).shape
        torch.Size([1, 64, 2, 32])
    """
    options = arguments.of_scores(softmax_scale, causal, window_size, softcap)
    options["attention_chunk"] = attention_chunk
    scales: dict[str, Any] = {"q_scale": q_descale, "k_scale": k_descale, "v_scale": v_descale}
    with_lse = checks.flag("return_attn_probs", return_attn_probs)
    found: Any
    if qv is None:
        found = dense.flash_attention(q, k, v, return_lse=with_lse, **options, **scales)
        return found

    def run(q: Any, qv: Any, k: Any, v: Any) -> Any:
        given = {**options, **scales, "qv": qv}
        return kvcache.flash_attention_kvcache(q, k, v, return_lse=True, **given)

    found = autograd.forward_only(run, QV, {"q": q, "qv": qv, "k": k, "v": v})
    return found if with_lse else found[0]


def flash_attn_qkvpacked_func(
    qkv: torch.Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    q_descale: torch.Tensor | None = None,
    k_descale: torch.Tensor | None = None,
    v_descale: torch.Tensor | None = None,
    window_size: Window = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    deterministic: bool = False,
    num_heads_q: int | None = None,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Result:
    """``flash_attn_func`` of one tensor.

    Args:
        qkv: (batch, seqlen, 3, heads, head_dim), or with ``num_heads_q`` the heads of queries, keys
            and values one after the other, (batch, seqlen, heads + 2 kv_heads, head_dim).
        softmax_scale: As in ``flash_attn_func``, like all that follow.
        causal: As there.
        q_descale: As there.
        k_descale: As there.
        v_descale: As there.
        window_size: As there.
        attention_chunk: As there.
        softcap: As there.
        deterministic: As there.
        num_heads_q: How many heads of a ``qkv`` of four axes are queries'.
        sm_margin: As there.
        return_attn_probs: As there.

    Returns:
        What ``flash_attn_func`` returns.

    Examples:
        >>> import torch
        >>> from kernels.flash_attn.fa3 import flash_attn_qkvpacked_func
        >>> flash_attn_qkvpacked_func(torch.randn(1, 64, 8, 32), num_heads_q=4).shape
        torch.Size([1, 64, 4, 32])
    """
    if isinstance(qkv, torch.Tensor) and qkv.dim() == 4:
        heads = checks.whole(num_heads_q)
        rest = qkv.shape[2] - (heads or 0)
        if heads is None or not 0 < heads < qkv.shape[2] or rest % 2:
            raise ValueError(
                "num_heads_q: expected how many heads of a qkv of four axes are queries', so "
                f"that an even number of the {qkv.shape[2]} is left, got {num_heads_q!r}"
            )
        q, k, v = qkv.split([heads, rest // 2, rest // 2], 2)
    else:
        q, k, v = arguments.packed("qkv", qkv, 3, 5)
    scales = (q_descale, k_descale, v_descale)
    options = (softmax_scale, causal, None, *scales, window_size, attention_chunk, softcap)
    return flash_attn_func(q, k, v, *options, return_attn_probs=return_attn_probs)


@arguments.renamed(**arguments.OF_FA3)
def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    seqused_q: torch.Tensor | None = None,
    seqused_k: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    qv: torch.Tensor | None = None,
    q_descale: torch.Tensor | None = None,
    k_descale: torch.Tensor | None = None,
    v_descale: torch.Tensor | None = None,
    window_size: Window = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Result:
    """``flash_attn_func`` of packed sequences.

    Args:
        q: (tokens_q, heads, head_dim).
        k: (tokens_k, kv_heads, head_dim).
        v: (tokens_k, kv_heads, head_dim_v).
        cu_seqlens_q: int32 (batch + 1,): sequence i is the rows from entry i up to entry i + 1.
        cu_seqlens_k: The same of the keys.
        max_seqlen_q: The longest sequence of queries.
        max_seqlen_k: The longest sequence of keys.
        seqused_q: int32 (batch,): only so many of each sequence's rows are queries.
        seqused_k: The same of the keys.
        softmax_scale: As in ``flash_attn_func``, like all that follow.
        causal: As there.
        qv: (tokens_q, heads, head_dim_v).
        q_descale: As there.
        k_descale: As there.
        v_descale: As there.
        window_size: As there.
        attention_chunk: As there.
        softcap: As there.
        num_splits: As there.
        pack_gqa: As there.
        deterministic: As there.
        sm_margin: As there.
        return_attn_probs: As there.

    Returns:
        (tokens_q, heads, head_dim_v), and with ``return_attn_probs`` the log-sum-exp, (heads,
        tokens_q).

    Examples:
        >>> import torch
        >>> from kernels.flash_attn.fa3 import flash_attn_varlen_func
        >>> q, k, v = torch.randn(3, 48, 2, 32).unbind()
        >>> at = torch.tensor([0, 16, 48], dtype=torch.int32)
        >>> flash_attn_varlen_func(q, k, v, at, at, 32, 32, causal=True).shape
        torch.Size([48, 2, 32])
    """
    options = arguments.of_scores(softmax_scale, causal, window_size, softcap)
    options["attention_chunk"] = attention_chunk
    scales: dict[str, Any] = {"q_scale": q_descale, "k_scale": k_descale, "v_scale": v_descale}
    with_lse = checks.flag("return_attn_probs", return_attn_probs)
    sequences = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    used = {"seqused_q": seqused_q, "seqused_k": seqused_k}
    found: Any
    if qv is None:
        given = {"return_lse": with_lse, **used, **options, **scales}
        found = varlen.flash_attention_varlen(q, k, v, *sequences, **given)
        return found
    for name, one in (("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k", cu_seqlens_k)):
        checks.tensor(name, one, rank=1, layout="(batch + 1,)")
    pages = cache.rows_as_pages(k, v, cu_seqlens_k, max_seqlen_k, seqused_k)
    cu_q, max_q = cu_seqlens_q, max_seqlen_q
    if seqused_q is not None:
        cu_q, pages = cache.used_as_sequences(cu_q, seqused_q, pages)
        max_q = max(len(q), 1)

    def run(q: Any, qv: Any, k: Any, v: Any) -> Any:
        where = {**pages, "cu_seqlens_q": cu_q, "max_seqlen_q": max_q}
        given = {**where, **options, **scales, "qv": qv, "return_lse": True}
        return kvcache.flash_attention_kvcache(q, **given)

    found = autograd.forward_only(run, QV, {"q": q, "qv": qv, "k": k, "v": v})
    return found if with_lse else found[0]
