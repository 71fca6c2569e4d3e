"""The plain formula of attention in PyTorch, with whichever masks a workload has."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

SCORES_AT_ONCE = 1 << 24  # of fp64: 128 MiB, and a few times as much beside it


def plain_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal_offset: int | None = None,
    left_offset: int | None = None,
    scale: float | None = None,
    dtype: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and log-sum-exp by the formula: matmuls in ``dtype`` (the inputs' own by default),
    softmax in fp32, or all in fp64. Rows that see no key give 0 and -inf.

    One (batch, head) at a time, in fp64 as many heads as ``SCORES_AT_ONCE`` lets, so that the truth
    of a long sequence fits in memory and that of many short ones is not a wait for launches.
    """
    import torch

    kind = getattr(torch, dtype) if dtype else q.dtype
    wide = torch.float64 if kind == torch.float64 else torch.float32
    B, S, H, D = q.shape
    keys, kv_heads = k.shape[1], k.shape[2]
    scale = 1.0 / math.sqrt(D) if scale is None else scale
    mask = None
    rows = torch.arange(S, device=q.device)[:, None]
    columns = torch.arange(keys, device=q.device)[None, :]
    if causal_offset is not None:
        mask = columns > rows + causal_offset
    if left_offset is not None:
        early = columns < rows + left_offset
        mask = early if mask is None else mask | early
    out = torch.empty((B, S, H, v.shape[3]), dtype=kind, device=q.device)
    lse = torch.empty((B, H, S), dtype=wide, device=q.device)
    group = H // kv_heads
    # Gathered heads are dear to differentiate: gradients are taken one head at a time.
    many = kind == torch.float64 and not q.requires_grad
    together = max(1, SCORES_AT_ONCE // max(S * keys, 1)) if many else 1
    for b in range(B):
        if together > 1:
            for first in range(0, H, together):
                some = torch.arange(first, min(first + together, H), device=q.device)
                ours, theirs = q[b, :, some].transpose(0, 1), some // group
                scores = ours.double() @ k[b, :, theirs].permute(1, 2, 0).double() * scale
                if mask is not None:
                    scores = scores.masked_fill(mask, float("-inf"))
                lse[b, some] = torch.logsumexp(scores, 2)
                empty = lse[b, some] == float("-inf")
                weights = torch.softmax(scores, 2).masked_fill(empty[..., None], 0.0)
                values = v[b, :, theirs].transpose(0, 1).double()
                out[b, :, some] = (weights @ values).transpose(0, 1)
            continue
        for h in range(H):
            g = h // group
            scores = (q[b, :, h].to(kind) @ k[b, :, g].to(kind).t()).to(wide) * scale
            if mask is not None:
                scores = scores.masked_fill(mask, float("-inf"))
            lse[b, h] = torch.logsumexp(scores, 1)
            empty = lse[b, h] == float("-inf")
            weights = torch.softmax(scores, 1).masked_fill(empty[:, None], 0.0)
            out[b, :, h] = weights.to(kind) @ v[b, :, g].to(kind)
    return out, lse
