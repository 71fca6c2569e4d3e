"""The inputs of attention as libraries take them: heads before rows, or rows before heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from warpwatch.workload.base import Inputs, Workload

if TYPE_CHECKING:
    import torch


def asks_heads_first(workload: Workload) -> bool:
    """Whether the workload's own call has (batch, heads, rows, head dim)."""
    return workload.kernel == "scaled_dot_product_attention"


def heads_first(workload: Any, inputs: Inputs, names: Sequence[str] = "qkv") -> list[torch.Tensor]:
    """(batch, heads, rows, head dim), as torch takes them: views, nothing is copied."""
    tensors = [inputs[name] for name in names]
    return tensors if asks_heads_first(workload) else [one.transpose(1, 2) for one in tensors]


def rows_first(workload: Any, inputs: Inputs) -> list[torch.Tensor]:
    """(batch, rows, heads, head dim), as FlashAttention takes them: views, too."""
    tensors = [inputs[name] for name in "qkv"]
    return [one.transpose(1, 2) for one in tensors] if asks_heads_first(workload) else tensors


def as_asked(workload: Any, out: torch.Tensor) -> torch.Tensor:
    """An output of (batch, heads, rows, head dim) as the workload's own call returns it."""
    return out if asks_heads_first(workload) else out.transpose(1, 2)
