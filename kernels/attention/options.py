"""What may be asked of attention's scores, as it comes from the user and as kernels take it."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import torch

from .. import checks


@dataclass(frozen=True, eq=False)
class Options:
    """Checked: ``softcap`` above 0, ``slopes`` (batch, heads) and ``sinks`` (heads,) in fp32."""

    softcap: float | None = None
    slopes: torch.Tensor | None = None
    sinks: torch.Tensor | None = None

    @property
    def plain(self) -> bool:
        return not self.modifies and self.sinks is None

    @property
    def modifies(self) -> bool:
        """Whether a score is more than a scaled product."""
        return self.softcap is not None or self.slopes is not None

    def arguments(self, scale: float) -> tuple[Any, ...]:
        """Of every kernel, from ``factor`` on."""
        strides = (None, None) if self.slopes is None else self.slopes.stride()
        return (
            scale if self.modifies else None,
            self.softcap,
            self.slopes,
            *strides,
            self.sinks,
        )


def checked(
    q: torch.Tensor, by_head: tuple[int, int], softcap: Any, slopes: Any, sinks: Any
) -> tuple[Any, ...]:
    """What ``Options`` takes, for ``by_head`` (batch, heads)."""
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
    return softcap, slopes, sinks


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
