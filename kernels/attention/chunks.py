"""Attention within chunks of keys: each is a packed sequence, or the only one that is seen."""

from __future__ import annotations

from typing import Any

import torch

from .. import checks
from . import varlen


def checked(chunk: Any, **others: Any) -> int | None:
    """How many keys a chunk has, None where there are none; ``others`` do not go with chunks."""
    found: int | None = checks.whole(chunk)
    if chunk is not None and (found is None or checks.negative(found)):
        raise ValueError(
            f"attention_chunk: expected how many keys a chunk has, or None, got {chunk!r}"
        )
    if not found:  # 0 is what FlashAttention-3's callers write for none
        return None
    for name, value in others.items():
        if value is not None:
            raise ValueError(
                f"{name}: expected None beside attention_chunk, got {type(value).__name__}; hide "
                "other chunks by it, and leave attention_chunk out"
            )
    return found


def seen(
    chunk: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, int | None]:
    """Of k and v the chunk that all queries are in, and None; all and ``chunk`` where they are in
    several."""
    seqlen_q, seqlen_k = q.shape[1], k.shape[1]
    first = (seqlen_k - seqlen_q) // chunk
    if first < 0 or first < (seqlen_k - 1) // chunk:
        return k, v, chunk
    return k[:, first * chunk :], v[:, first * chunk :], None


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    chunk: int,
    reach: tuple[bool, int, int | None],
    scale: float,
    options: tuple[Any, ...],
    return_lse: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, log-sum-exp) of queries in several chunks, for checked arguments. ``reach`` is
    ``shapes.limits`` of offset 0. A batch whose rows do not follow one another is copied."""
    (batch, seqlen_q), seqlen_k = q.shape[:2], k.shape[1]
    # Queries before the first key are in chunks without keys.
    first = min((seqlen_k - seqlen_q) // chunk, 0)
    chunks = -(-seqlen_k // chunk) - first
    entry = torch.arange(batch * chunks + 1, device=q.device)
    sequence, start = entry // chunks, (entry % chunks + first) * chunk
    cu_q, cu_k = (
        (sequence * rows + (start - before).clamp(0, rows)).int()
        for rows, before in ((seqlen_q, seqlen_k - seqlen_q), (seqlen_k, 0))
    )
    softcap, slopes, *others = options[: len(varlen.ASKED)]
    if slopes is not None:
        slopes = slopes.repeat_interleave(chunks, 0)
    out, lse, _ = varlen.attend(
        *(one.flatten(0, 1) for one in (q, k, v)),
        cu_q,
        cu_k,
        min(chunk, seqlen_q),
        min(chunk, seqlen_k),
        *reach,
        scale,
        softcap,
        slopes,
        *others,
        return_lse,
    )
    if return_lse:
        lse = lse.unflatten(1, (batch, seqlen_q)).transpose(0, 1).contiguous()
    return out.unflatten(0, (batch, seqlen_q)), lse
