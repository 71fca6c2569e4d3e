"""Which tensors ``torch.autocast`` lowers, and to what."""

from __future__ import annotations

from typing import Any

import torch


def lowered(*values: Any, but: torch.dtype | None = None) -> tuple[Any, ...]:
    """The values with fp32, fp16 and bf16 tensors in autocast's dtype where it is on.

    As torch's own matmul and attention behave under autocast; the casts are differentiable.
    Everything else comes back as it is, and so do tensors of the dtype ``but``.
    """
    return tuple(
        value if but is not None and getattr(value, "dtype", None) == but else _lowered(value)
        for value in values
    )


def _lowered(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    kind = value.device.type
    if value.dtype.itemsize not in (2, 4) or kind not in ("cuda", "cpu"):
        return value
    return value.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else value
