"""Which back end serves a forward pass in fp8."""

from __future__ import annotations

from typing import Any

import torch

from kernels.attention.common.packed.sequences import Packed
from kernels.attention.portable.fp8 import kernel as fp8
from kernels.runtime import backends, targets


def launch(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    *,
    left_offset: int | None,
    scale: float,
    softcap: float | None = None,
    packed: Packed | None = None,
    **given: Any,
) -> None:
    """The kernel of this architecture where there is one and it takes the problem."""
    given |= {"scale": scale, "packed": packed}
    with targets.on_device_of(q, "q"):
        plain = left_offset is None and softcap is None
        if not plain or not backends.specialised(
            "attention.hopper.fp8.launch",
            lambda hopper: hopper.supported(q, k, v, scale, packed),
            lambda hopper: hopper.launch(q, k, v, out, lse, **given),
        ):
            fp8.launch(q, k, v, out, lse, left_offset=left_offset, softcap=softcap, **given)
