"""What flash_attention_kvcache is to give on a case: each sequence by itself, in plain PyTorch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from tests.kernels.kvcache_case import Case


def formula(case: Case, q: Any, k: Any, v: Any, dtype: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Every sequence by itself: matmuls in ``dtype``, softmax in fp32, or all in fp64."""
    kind = getattr(torch, dtype)
    wide = torch.float64 if kind == torch.float64 else torch.float32
    left, right = case.window
    right = 0 if case.causal else right
    extras = case.extras()
    outs, lses = [], []
    for b, (own, queries) in enumerate(zip(case.own(), case.of_each(q), strict=True)):
        S, n = len(queries), own.stop
        rows = queries.to(kind).transpose(0, 1)
        keys, values = (
            one[b, own.start : n].to(kind).transpose(0, 1).repeat_interleave(case.H // case.G, 0)
            for one in (k, v)
        )
        scores = (rows @ keys.transpose(1, 2)).to(wide)
        if case.qv:
            more = case.of_each(case.queries_of_values())[b].to(kind).transpose(0, 1)
            scores = scores + (more @ values.transpose(1, 2)).to(wide)
        scores = scores / math.sqrt(case.D + (case.DV or case.D) * case.qv)
        if case.softcap:
            scores = case.softcap * torch.tanh(scores / case.softcap)
        after = torch.tensor(own) - torch.arange(S)[:, None] - (n - S)
        if case.alibi:
            scores = scores - extras["alibi_slopes"][b].to(wide)[:, None, None] * after.abs()
        if right >= 0:
            scores = scores.masked_fill(after > right, -math.inf)
        if left >= 0:
            scores = scores.masked_fill(after < -left, -math.inf)
        if case.chunk:
            place = torch.arange(S)[:, None] + n - S
            away = (torch.tensor(own) - own.start) // case.chunk
            away = away != (place - own.start) // case.chunk
            scores = scores.masked_fill(away, -math.inf)
        if case.sinks:
            sink = extras["sinks"].to(wide)[:, None, None].expand(-1, S, 1)
            scores = torch.cat((scores, sink), 2)
        lse = torch.logsumexp(scores, 2)
        weights = torch.softmax(scores, 2).masked_fill((lse == -math.inf)[..., None], 0.0)
        outs.append((weights[..., : len(own)].to(kind) @ values).transpose(0, 1))
        lses.append(lse)
    if not case.queries:
        return torch.stack(outs), torch.stack(lses)
    outs.append(outs[0].new_zeros(case.S, *outs[0].shape[1:]))
    lses.append(lses[0].new_full((case.H, case.S), -math.inf))
    return torch.cat(outs), torch.cat(lses, 1)


def turned(case: Case, rows: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Rows (tokens, heads, dim) at their ``positions``, by complex numbers, in fp32 or fp64."""
    if not case.rotary:
        return rows
    wide = rows.to(torch.float64 if rows.dtype == torch.float64 else torch.float32)
    cos, sin = (one[positions][:, None].to(wide) for one in case.angles())
    x, y = _pairs(case, wide)
    return _joined(case, x * cos - y * sin, y * cos + x * sin, wide).to(rows.dtype)


def rounding_error(case: Case, rows: torch.Tensor) -> torch.Tensor:
    """The most by which fp32 is off, of ``rows`` that it turned, scaled or both: of the size of
    the pair that a value is turned in, 2**-21, which is 4 roundings."""
    sizes = rows.abs()
    if case.rotary:
        length = torch.hypot(*_pairs(case, rows))
        sizes = _joined(case, length, length, sizes)
    return sizes * 2.0**-21


def _pairs(case: Case, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Both columns of each pair that is turned."""
    pairs = rows[..., : case.rotary].unflatten(-1, (-1, 2) if case.interleaved else (2, -1))
    x, y = pairs.unbind(-1 if case.interleaved else -2)
    return x, y


def _joined(case: Case, x: torch.Tensor, y: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """``rows`` with these pairs in place of theirs."""
    both = torch.stack((x, y), -1 if case.interleaved else -2)
    return torch.cat((both.flatten(-2), rows[..., case.rotary :]), -1)


def appended(case: Case, q: Any, k: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """q and k as attention sees them."""
    q, k = q.clone(), k.clone()
    each = case.causal or case.window != (-1, -1) or case.chunk is not None
    for b, (queries, rows) in enumerate(zip(case.of_each(q), case.added(), strict=True)):
        first = case.turned_from[b] if case.turned_from else rows.start
        queries.copy_(turned(case, queries, first + torch.arange(len(queries)) * each))
        k[b, rows] = turned(case, k[b, rows], first + torch.arange(len(rows)))
    return q, k
