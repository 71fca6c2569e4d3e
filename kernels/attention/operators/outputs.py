"""Outputs of attention before a launch fills them, which is also what torch traces."""

from __future__ import annotations

from typing import Any

import torch


def unwritten(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, log-sum-exp) of queries (batch, seqlen_q, heads, head_dim), or packed (tokens, heads,
    head_dim); of the dtype that stands last, if one does."""
    dtype = rest[-1] if rest and isinstance(rest[-1], torch.dtype) else q.dtype
    out = torch.empty((*q.shape[:-1], v.shape[-1]), dtype=dtype, device=q.device)
    return out, torch.empty(_of_rows(q), dtype=torch.float32, device=q.device)


def with_marks(
    q: torch.Tensor, v: torch.Tensor, *, exact_gradients: bool, return_lse: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The same as ``flash_attention_op`` returns it."""
    out = torch.empty((*q.shape[:-1], v.shape[-1]), dtype=q.dtype, device=q.device)
    marks, shape = exact_gradients and q.dtype.itemsize == 2, _of_rows(q)
    shapes = (shape if return_lse or not marks else (0,), shape if marks else (0,))
    lse, rows = (torch.empty(one, dtype=torch.float32, device=q.device) for one in shapes)
    return out, lse, rows


def _of_rows(q: torch.Tensor) -> tuple[int, ...]:
    return (*q.shape[:-3], q.shape[-2], q.shape[-3])
