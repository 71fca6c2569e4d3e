"""torch's scaled_dot_product_attention, by the same kernels."""

from __future__ import annotations

import math
from typing import Any

import torch

from kernels.attention.common.options import checked, is_causal_bias
from kernels.attention.common.shapes import check
from kernels.attention.operators import dense as operators
from kernels.runtime import autocast, checks
from kernels.runtime.launch import prepared


@prepared
def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    exact_gradients: bool = True,
) -> torch.Tensor:
    """``torch.nn.functional.scaled_dot_product_attention``, by the kernels of ``flash_attention``.

    Any number of batch axes may stand before the heads, or none, and heads may be missing, too.
    Batch axes broadcast, and so do heads without ``enable_gqa``. Broadcast axes are read as they
    lie; of several batch axes those that are no single one in memory, as (2, 1) with (2, 3), are
    copied. Inputs of four axes are read through transposed views and never copied. A row that sees
    no key gives 0.

    Args:
        query: (..., heads, seqlen_q, head_dim), fp16, bf16 or fp32.
        key: (..., kv_heads, seqlen_k, head_dim), of query's dtype.
        value: (..., kv_heads, seqlen_k, head_dim_v), of query's dtype.
        attn_mask: Broadcasts to (..., heads, seqlen_q, seqlen_k). bool lets a query see a key where
            it is true; fp16, bf16 or fp32 is added, and -inf hides. It may have a gradient, which
            takes the memory of ``flash_attention``'s ``bias``. ``causal_lower_right`` and
            ``causal_upper_left`` of ``torch.nn.attention.bias`` hide keys without being read.
        dropout_p: The share of the weights that is dropped, by a seed drawn from torch's generator.
            torch drops others.
        is_causal: Aligned to the top left, as torch's: query i sees key j where j <= i.
            ``flash_attention`` aligns to the bottom right; the two agree where the lengths do.
        scale: 1 / sqrt(head_dim) by default.
        enable_gqa: Whether query heads may share key heads, as in ``flash_attention``.
        exact_gradients: As in ``flash_attention``; torch has no such argument.

    Returns:
        (..., heads, seqlen_q, head_dim_v), of query's dtype.

    Raises:
        TypeError: An argument is no tensor or no number.
        ValueError: A shape, dtype or device does not fit, or a mask came with ``is_causal``.
        NotImplementedError: Forward-mode differentiation.

    Examples:
        >>> import torch
        >>> from kernels import scaled_dot_product_attention
        >>> q, k, v = torch.randn(3, 1, 2, 64, 32).unbind()
        >>> out = scaled_dot_product_attention(q, k, v, is_causal=True)
        >>> expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        >>> torch.allclose(out, expected, atol=1e-4)
        True
    """
    is_causal = checks.flag("is_causal", is_causal)
    if is_causal and attn_mask is not None:
        raise ValueError(
            "attn_mask: expected None with is_causal=True, as torch does; put both into the mask"
        )
    names = ("query", "key", "value")
    query, key, value = autocast.lowered(query, key, value)
    grouped = checks.flag("enable_gqa", enable_gqa)
    shape: tuple[int, ...] | None = None
    if not _in_four_axes(query, key, value, grouped):
        shape, query, key, value, attn_mask = _spread(query, key, value, attn_mask, grouped)
    check(query, key, value, names, layout="(batch, heads, seqlen, head_dim)", head_axis=1)
    batch, heads, rows, head_dim = query.shape
    scores = (batch, heads, rows, key.shape[2])
    offset = 0
    if isinstance(attn_mask, torch.Tensor) and is_causal_bias(attn_mask):
        is_causal, offset = True, _diagonal(attn_mask, scores[2:])
        attn_mask = None
    options = checked(
        query,
        scores,
        dropout=dropout_p,
        bias=attn_mask,
        bias_name="attn_mask",
        exact_gradients=exact_gradients,
    )
    scale = checks.softmax_scale(scale, head_dim, "scale")
    checks.launchable("query", query)
    q, k, v = (one.transpose(1, 2) for one in (query, key, value))
    mask = (is_causal, offset, None)
    out, _ = operators.flash_attention(q, k, v, *mask, scale, *options, return_lse=False)
    out = out.transpose(1, 2)
    return out if shape is None else out.reshape(shape)


def _in_four_axes(query: Any, key: Any, value: Any, grouped: bool) -> bool:
    """Whether nothing broadcasts and the axes are four; or it is something that is refused."""
    try:
        q, k, v = query.shape, key.shape, value.shape
    except (AttributeError, RuntimeError):  # no tensor; a nested one
        return True
    return (
        len(q) == len(k) == len(v) == 4
        and q[0] == k[0] == v[0]
        and k[1] == v[1]
        and (grouped or q[1] == k[1])
    )


def _spread(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, grouped: bool
) -> tuple[tuple[int, ...], torch.Tensor, torch.Tensor, torch.Tensor, Any]:
    """The shape of the result, and all in four axes of one batch: views where there are such."""
    given = {"query": query, "key": key, "value": value}
    for name, one in given.items():
        layout = "(..., heads, seqlen, head_dim) or (seqlen, head_dim)"
        if not isinstance(one, torch.Tensor):
            raise TypeError(
                f"{name}: expected a torch.Tensor of shape {layout}, got {type(one).__name__}"
            )
        checks.dense(name, one)
        if one.dim() < 2:
            raise ValueError(f"{name}: expected {layout}, got shape {tuple(one.shape)}; reshape it")
    lead = _broadcast({name: tuple(one.shape[:-3]) for name, one in given.items()})
    batch = math.prod(lead)
    heads = [one.shape[-3] if one.dim() > 2 else 1 for one in given.values()]
    # Keys and values of one head are any number of query heads', as they are.
    most = next((n for n in heads if n != 1), 1)
    if not grouped:
        for name, n in zip(given, heads, strict=True):
            if n != 1 and n != most:
                raise ValueError(
                    f"{name}: expected {most} heads as query has, got {n}; pass enable_gqa=True "
                    "for grouped query heads"
                )
        heads = [most, most, most] if heads[1] != 1 or heads[2] != 1 else [most, 1, 1]
    query, key, value = (
        one.expand((*lead, n, *one.shape[-2:])).reshape(batch, n, *one.shape[-2:])
        for one, n in zip(given.values(), heads, strict=True)
    )
    scores = (heads[0], query.shape[2], key.shape[2])
    if isinstance(mask, torch.Tensor) and mask.dim() > 3 and not is_causal_bias(mask):
        mask = _of_batch(mask, lead, batch, scores)
    rank = max(one.dim() for one in given.values())
    shape = (*lead, heads[0], query.shape[2], value.shape[3])
    return (shape if rank > 2 else shape[1:]), query, key, value, mask


def _of_batch(
    mask: torch.Tensor, lead: tuple[int, ...], batch: int, scores: tuple[int, ...]
) -> torch.Tensor:
    """``mask`` of batch axes ``lead`` as one of a single one, or of any where it is one for all."""
    checks.dense("attn_mask", mask)
    own, rest = tuple(mask.shape[:-3]), tuple(mask.shape[-3:])
    last = lead[len(lead) - len(own) :]
    if len(own) > len(lead) or any(a != 1 and a != b for a, b in zip(own, last, strict=True)):
        raise ValueError(
            "attn_mask: expected a shape that broadcasts to (..., heads, seqlen_q, seqlen_k) = "
            f"{(*lead, *scores)}, got {tuple(mask.shape)}"
        )
    if all(size == 1 for size in own):
        return mask.reshape(1, *rest)
    return mask.expand((*lead, *rest)).reshape(batch, *rest)


def _broadcast(shapes: dict[str, tuple[int, ...]]) -> tuple[int, ...]:
    """Of batch axes; the first that does not fit is named."""
    rank = max(len(shape) for shape in shapes.values())
    found = [1] * rank
    for name, shape in shapes.items():
        for i, size in enumerate(shape, rank - len(shape)):
            if found[i] == 1:
                found[i] = size
            elif size != 1 and size != found[i]:
                raise ValueError(
                    f"{name}: expected batch axes that broadcast with {tuple(found)}, got {shape}; "
                    "each is that size, or 1"
                )
    return tuple(found)


def _diagonal(mask: Any, lengths: tuple[int, int]) -> int:
    """Of torch's causal mask for ``lengths`` of queries and keys: the last key of query 0."""
    if (mask.seq_len_q, mask.seq_len_kv) != lengths:
        raise ValueError(
            f"attn_mask: expected a causal mask of {lengths} as query and key have, got one of "
            f"{(mask.seq_len_q, mask.seq_len_kv)}"
        )
    return lengths[1] - lengths[0] if mask.variant.name == "LOWER_RIGHT" else 0
