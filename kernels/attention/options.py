"""What may be asked of attention's scores, as it comes from the user and as kernels take it."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import torch

from .. import checks


@dataclass(frozen=True, eq=False)
class Options:
    """Checked: ``softcap`` above 0, ``slopes`` (batch, heads) and ``sinks`` (heads,) in fp32;
    ``bias`` expands to (batch, heads, seqlen_q, seqlen_k), of uint8 where it hides.
    ``seed`` is int64 (1,)."""

    softcap: float | None = None
    slopes: torch.Tensor | None = None
    sinks: torch.Tensor | None = None
    dropout: float | None = None
    seed: torch.Tensor | None = None
    bias: torch.Tensor | None = None

    @property
    def plain(self) -> bool:
        return not self.modifies and self.sinks is None and self.dropout is None

    @property
    def modifies(self) -> bool:
        """Whether a score is more than a scaled product."""
        return any(one is not None for one in (self.softcap, self.slopes, self.bias))

    def arguments(self, scale: float, scores: tuple[int, int, int, int]) -> tuple[Any, ...]:
        """Of every kernel, from ``factor`` on, for ``scores`` of this shape."""
        strides = (None, None) if self.slopes is None else self.slopes.stride()
        bias = (None,) * 4 if self.bias is None else self.bias.expand(scores).stride()
        chances: tuple[Any, ...] = (None, None, None)
        if self.dropout is not None:
            keep = 0.0 if self.dropout == 1.0 else 1.0 / (1.0 - self.dropout)
            chances = (self.seed, round(self.dropout * 2**24), keep)
        return (
            scale if self.modifies else None,
            self.softcap,
            self.slopes,
            *strides,
            self.sinks,
            *chances,
            self.bias,
            *bias,
        )


def checked(
    q: torch.Tensor,
    scores: tuple[int, int, int, int],
    softcap: Any = None,
    slopes: Any = None,
    sinks: Any = None,
    dropout: Any = 0.0,
    seed: Any = None,
    bias: Any = None,
    bias_name: str = "bias",
) -> tuple[Any, ...]:
    """What ``Options`` takes, for ``scores`` of shape (batch, heads, seqlen_q, seqlen_k)."""
    by_head = scores[:2]
    if softcap is not None:
        # 0 is what FlashAttention's callers write for none.
        softcap = float(softcap) or None
    if softcap is not None and not 0.0 < softcap < math.inf:
        raise ValueError(f"softcap: expected a finite number above 0, or None, got {softcap}")
    if slopes is not None:
        slopes = _fp32("alibi_slopes", slopes, q, (by_head[1:], by_head))
        slopes = slopes.detach().expand(by_head)
    if sinks is not None:
        sinks = _fp32("sinks", sinks, q, (by_head[1:],)).contiguous()
    if bias is not None:
        bias = _bias(bias_name, bias, q, scores)
    return softcap, slopes, sinks, *_dropout(q, dropout, seed), bias


def _dropout(q: torch.Tensor, dropout: Any, seed: Any) -> tuple[float | None, torch.Tensor | None]:
    if not 0.0 <= dropout <= 1.0:
        raise ValueError(f"dropout_p: expected a probability from 0 to 1, got {dropout}")
    if isinstance(seed, torch.Tensor):
        checks.dtype("dropout_seed", seed, (torch.int64,))
        checks.same_device("q", q, dropout_seed=seed)
        if seed.numel() != 1:
            raise ValueError(f"dropout_seed: expected one number, got shape {tuple(seed.shape)}")
    elif seed is not None and not isinstance(seed, int):
        raise TypeError(
            "dropout_seed: expected an int, an int64 tensor of one number or None, got "
            f"{type(seed).__name__}"
        )
    if not dropout:
        return None, None
    if seed is None:
        seed = torch.randint(2**62, (1,), dtype=torch.int64, device=q.device)
    elif not isinstance(seed, torch.Tensor):
        seed = torch.full((1,), seed, dtype=torch.int64, device=q.device)
    return float(dropout), seed


def _bias(name: str, value: Any, q: torch.Tensor, scores: tuple[int, ...]) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise TypeError(
            f"{name}: expected a torch.Tensor that broadcasts to {scores}, got "
            f"{type(value).__name__}"
        )
    checks.dtype(name, value, (torch.float16, torch.bfloat16, torch.float32, torch.bool))
    checks.same_device("q", q, **{name: value})
    shape = (1,) * (4 - value.dim()) + tuple(value.shape)
    if len(shape) != 4 or any(a not in (1, b) for a, b in zip(shape, scores, strict=True)):
        raise ValueError(
            f"{name}: expected a shape that broadcasts to (batch, heads, seqlen_q, seqlen_k) = "
            f"{scores}, got {tuple(value.shape)}"
        )
    value = value.reshape(shape) if value.dim() < 4 else value
    return value.view(torch.uint8) if value.dtype == torch.bool else value


def _fp32(name: str, value: Any, q: torch.Tensor, shapes: tuple[tuple[int, ...], ...]) -> Any:
    expected = " or ".join(str(shape) for shape in shapes)
    if not isinstance(value, torch.Tensor):
        raise TypeError(
            f"{name}: expected a torch.Tensor of shape {expected}, got {type(value).__name__}"
        )
    checks.dtype(name, value, (torch.float32,))
    checks.same_device("q", q, **{name: value})
    if tuple(value.shape) not in shapes:
        raise ValueError(
            f"{name}: expected shape {expected} for q of {shapes[0][0]} heads, got "
            f"{tuple(value.shape)}"
        )
    return value


PLAIN = Options()
# As every operator takes them, after what is its own.
NAMES = tuple(field.name for field in fields(Options))
