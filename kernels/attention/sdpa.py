"""torch's scaled_dot_product_attention, by the same kernels."""

from __future__ import annotations

from typing import Any

import torch

from .. import autocast, checks
from .interface import attend, check
from .options import checked, is_causal_bias


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """``torch.nn.functional.scaled_dot_product_attention`` for (batch, heads, seqlen, head_dim).

    As torch's, ``is_causal`` is aligned top-left (query i sees key j when j <= i), where
    ``flash_attention`` aligns bottom-right; the two agree when the lengths do. Heads may differ
    only with ``enable_gqa``. Inputs are read through transposed views, never copied. ``attn_mask``
    broadcasts to (batch, heads, seqlen_q, seqlen_k): bool lets a query see a key where it is true,
    fp16, bf16 or fp32 is added to the scores, -inf hides. It is not copied and may have a gradient,
    whose memory is told at ``flash_attention``'s ``bias``. Those of ``torch.nn.attention.bias``
    (``causal_lower_right``, ``causal_upper_left``) hide keys without being read. A row that sees no
    key gives 0.
    ``dropout_p`` drops weights by a seed drawn from torch's generator, not the ones torch drops.
    """
    is_causal = checks.flag("is_causal", is_causal)
    if is_causal and attn_mask is not None:
        raise ValueError(
            "attn_mask: expected None with is_causal=True, as torch does; put both into the mask"
        )
    names = ("query", "key", "value")
    query, key, value = autocast.lowered(query, key, value)
    check(query, key, value, names, layout="(batch, heads, seqlen, head_dim)", head_axis=1)
    if not checks.flag("enable_gqa", enable_gqa) and query.shape[1] != key.shape[1]:
        raise ValueError(
            f"key: expected {query.shape[1]} heads as query has, got {key.shape[1]}; pass "
            "enable_gqa=True for grouped query heads"
        )
    scores = (*query.shape[:3], key.shape[2])
    offset = 0
    if isinstance(attn_mask, torch.Tensor) and is_causal_bias(attn_mask):
        is_causal, offset = True, _diagonal(attn_mask, scores[2:])
        attn_mask = None
    options = checked(query, scores, dropout=dropout_p, bias=attn_mask, bias_name="attn_mask")
    scale = checks.softmax_scale(scale, query.shape[3], "scale")
    checks.launchable("query", query)
    q, k, v = (one.transpose(1, 2) for one in (query, key, value))
    out, _ = attend(q, k, v, is_causal, offset, None, scale, *options)
    return out.transpose(1, 2)


def _diagonal(mask: Any, lengths: tuple[int, int]) -> int:
    """Of torch's causal mask for ``lengths`` of queries and keys: the last key of query 0."""
    if (mask.seq_len_q, mask.seq_len_kv) != lengths:
        raise ValueError(
            f"attn_mask: expected a causal mask of {lengths} as query and key have, got one of "
            f"{(mask.seq_len_q, mask.seq_len_kv)}"
        )
    return lengths[1] - lengths[0] if mask.variant.name == "LOWER_RIGHT" else 0
