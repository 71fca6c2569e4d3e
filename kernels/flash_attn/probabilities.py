"""``S_dmask``, which FlashAttention returns to tests: the weights, and which dropout dropped.

They are read out of the attention itself: values that are the columns of a unit matrix give the
weights of these keys. Scores are not kept anywhere, so this takes one pass for each 256 keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernels.attention.common.shapes import MAX_HEAD_DIM

# Of values (rows, columns), one row a key: the attention to them, (..., heads, columns).
Attend = Callable[[torch.Tensor], torch.Tensor]


def signed(
    weights: Attend, kept: Attend, position: torch.Tensor, keys: int, dtype: torch.dtype
) -> torch.Tensor:
    """(..., heads, keys): the weights, below 0 where they are dropped. ``kept`` attends to uniform
    weights, of which dropout leaves something or nothing. ``position`` is each key's within its
    sequence, of which none has more than ``keys``."""
    found = []
    for first in range(0, keys, MAX_HEAD_DIM):
        columns = torch.arange(first, min(first + MAX_HEAD_DIM, keys), device=position.device)
        unit = (position[:, None] == columns).to(dtype)
        some = weights(unit)
        found.append(torch.where(kept(unit) > 0.0, some, -some))
    return torch.cat(found, -1)


def of_batch(
    attend: Callable[..., Any], q: torch.Tensor, k: torch.Tensor, seed: torch.Tensor, p: float,
    options: dict[str, Any],
) -> torch.Tensor:  # fmt: skip
    """(batch, heads, seqlen_q, seqlen_k) by ``attend``, which is ``flash_attention``."""
    nothing = torch.zeros((), dtype=q.dtype, device=q.device)
    no_q, no_k = nothing.expand(q.shape), nothing.expand(k.shape)

    def values(unit: torch.Tensor) -> torch.Tensor:
        return unit[None, :, None].expand(k.shape[0], -1, k.shape[2], -1)

    found = signed(
        lambda unit: attend(q, k, values(unit), **options),
        lambda unit: attend(no_q, no_k, values(unit), dropout_p=p, dropout_seed=seed),
        torch.arange(k.shape[1], device=k.device),
        k.shape[1],
        q.dtype,
    )
    return found.transpose(1, 2)


def of_sequences(
    attend: Callable[..., Any], q: torch.Tensor, k: torch.Tensor, sequences: tuple[Any, ...],
    seed: torch.Tensor, p: float, options: dict[str, Any],
) -> torch.Tensor:  # fmt: skip
    """(batch, heads, max_seqlen_q, max_seqlen_k) by ``attend``, which is
    ``flash_attention_varlen``; zeros where a sequence is shorter."""
    cu_q, cu_k, max_q, max_k = sequences
    nothing = torch.zeros((), dtype=q.dtype, device=q.device)
    no_q, no_k = nothing.expand(q.shape), nothing.expand(k.shape)
    tokens = torch.arange(k.shape[0], device=k.device)
    owner = torch.searchsorted(cu_k[1:], tokens, right=True).clamp(max=max(cu_k.numel() - 2, 0))

    def values(unit: torch.Tensor) -> torch.Tensor:
        return unit[:, None].expand(-1, k.shape[1], -1)

    found = signed(
        lambda unit: attend(q, k, values(unit), *sequences, **options),
        lambda unit: attend(no_q, no_k, values(unit), *sequences, dropout_p=p, dropout_seed=seed),
        tokens - cu_k[owner],
        max_k,
        q.dtype,
    )
    rows = cu_q[:-1, None] + torch.arange(max_q, device=q.device)
    inside = rows < cu_q[1:, None]
    each = found[rows.clamp(max=max(len(q) - 1, 0))]  # (batch, max_q, heads, keys)
    return torch.where(inside[..., None, None], each, 0.0).transpose(1, 2)
