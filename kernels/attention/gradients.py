"""The backward pass: kernels of this architecture where there are any, else the portable ones."""

from __future__ import annotations

from typing import Any

import torch

from .. import specialised, targets
from . import backward
from .options import PLAIN, Options
from .packed import Packed


def launch(
    dout: torch.Tensor,
    dlse: torch.Tensor | None,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    *,
    causal: bool,
    causal_offset: int,
    left_offset: int | None,
    scale: float,
    packed: Packed | None = None,
    options: Options = PLAIN,
    bias_grad: bool = False,
) -> list[torch.Tensor]:
    """As ``backward.launch`` returns them."""
    mask: dict[str, Any] = {
        "causal": causal,
        "causal_offset": causal_offset,
        "left_offset": left_offset,
        "packed": packed,
    }
    alike = v.shape[3] == q.shape[3] and options.plain
    # Packed sequences' offsets count from the end of each.
    rows, keys = (q.shape[1], k.shape[1]) if packed is None else (packed.max_q, packed.max_k)
    ends = 0 if packed is None else keys - rows
    left = None if left_offset is None else left_offset + ends
    seen = backward.keys_seen(keys, causal, causal_offset + ends, left, rows)
    if alike and seen > backward.FEW_KEYS:
        with targets.on_device_of(q):
            name = "attention.hopper_backward_launch"
            hopper = specialised.load(name) if targets.current().has_wgmma else None
            if (
                hopper is not None
                and hopper.supported(q, k, v, dout, scale, **mask)
                and hopper.faster(q, k, seen, windowed=left_offset is not None, packed=packed)
            ):
                gradients = [
                    torch.empty_like(
                        one if packed is None else one[0], memory_format=torch.contiguous_format
                    )
                    for one in (q, k, v)
                ]
                tensors = hopper.Tensors(dout, dlse, q, k, v, out, lse, *gradients)
                if specialised.serves(name, hopper.launch, tensors, scale=scale, **mask):
                    return gradients
    return backward.launch(
        dout,
        dlse,
        q,
        k,
        v,
        out,
        lse,
        scale=scale,
        options=options,
        bias_grad=bias_grad,
        **mask,
    )
