"""``S_dmask``, which FlashAttention returns to tests: the weights, and which dropout dropped.

They are read out of the attention itself: values that are the columns of a unit matrix give the
weights of these keys. Scores are not kept anywhere, so this takes one pass for each 256 keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernels.attention.common.shapes import MAX_HEAD_DIM


def _signed(
    attend: Callable[..., Any], q: torch.Tensor, k: torch.Tensor,
    values: Callable[[torch.Tensor], torch.Tensor], position: torch.Tensor, keys: int,
    options: dict[str, Any], dropout: dict[str, Any],
) -> torch.Tensor:  # fmt: skip
    """(..., heads, keys): the weights, below 0 where ``dropout`` drops them: of uniform weights it
    leaves something or nothing. ``values`` makes them of columns, one row a key. ``position`` is
    each key's within its sequence, of which none has more than ``keys``."""
    nothing = torch.zeros((), dtype=q.dtype, device=q.device)
    uniform = (nothing.expand(q.shape), nothing.expand(k.shape))
    found = []
    for first in range(0, keys, MAX_HEAD_DIM):
        columns = torch.arange(first, min(first + MAX_HEAD_DIM, keys), device=position.device)
        unit = values((position[:, None] == columns).to(q.dtype))
        some = attend(q, k, unit, **options)
        found.append(torch.where(attend(*uniform, unit, **dropout) > 0.0, some, -some))
    return torch.cat(found, -1)


def of_batch(
    attend: Callable[..., Any], q: torch.Tensor, k: torch.Tensor, options: dict[str, Any],
    dropout: dict[str, Any],
) -> torch.Tensor:  # fmt: skip
    """(batch, heads, seqlen_q, seqlen_k) by ``attend``, which is ``flash_attention``."""

    def values(unit: torch.Tensor) -> torch.Tensor:
        return unit[None, :, None].expand(k.shape[0], -1, k.shape[2], -1)

    position = torch.arange(k.shape[1], device=k.device)
    return _signed(attend, q, k, values, position, k.shape[1], options, dropout).transpose(1, 2)


def of_sequences(
    attend: Callable[..., Any], q: torch.Tensor, k: torch.Tensor, sequences: tuple[Any, ...],
    options: dict[str, Any], dropout: dict[str, Any],
) -> torch.Tensor:  # fmt: skip
    """(batch, heads, max_seqlen_q, max_seqlen_k) by ``attend``, which is
    ``flash_attention_varlen``; zeros where a sequence is shorter."""
    cu_q, cu_k, max_q, max_k = sequences
    tokens = torch.arange(k.shape[0], device=k.device)
    owner = torch.searchsorted(cu_k[1:], tokens, right=True).clamp(max=max(cu_k.numel() - 2, 0))

    def values(unit: torch.Tensor) -> torch.Tensor:
        return unit[:, None].expand(-1, k.shape[1], -1)

    def within(q: Any, k: Any, v: Any, **given: Any) -> Any:
        return attend(q, k, v, *sequences, **given)

    position = tokens - cu_k[owner]
    found = _signed(within, q, k, values, position, max_k, options, dropout)
    rows = cu_q[:-1, None] + torch.arange(max_q, device=q.device)
    inside = rows < cu_q[1:, None]
    each = found[rows.clamp(max=max(len(q) - 1, 0))]  # (batch, max_q, heads, keys)
    return torch.where(inside[..., None, None], each, 0.0).transpose(1, 2)
