"""The backward pass: kernels of this architecture where there are any, else the portable ones; of
packed sequences also what both leave to do."""

from __future__ import annotations

from typing import Any

import torch

from kernels.attention.common.numerics import exactness
from kernels.attention.common.options import PLAIN, Options
from kernels.attention.common.packed import tail as packed_rest
from kernels.attention.common.packed.sequences import Packed
from kernels.attention.portable.backward import heavy_rows as backward_exact
from kernels.attention.portable.backward import launch as backward
from kernels.attention.portable.backward import short_sequences
from kernels.runtime import backends, targets


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
    """As ``backward.launch`` returns them; of packed sequences with zeros behind the last, and each
    as exact as the keys that its own rows see ask for."""
    mask: dict[str, Any] = {
        "causal": causal,
        "causal_offset": causal_offset,
        "left_offset": left_offset,
    }
    alike = v.shape[3] == q.shape[3] and options.plain
    # Packed sequences' offsets count from the end of each.
    rows, keys = (q.shape[1], k.shape[1]) if packed is None else (packed.max_q, packed.max_k)
    ends = 0 if packed is None else keys - rows
    left = None if left_offset is None else left_offset + ends
    seen = exactness.keys_seen(keys, causal, causal_offset + ends, left, rows)
    exact = exactness.is_exact(q.dtype, seen, q.shape[:3].numel())
    found, less = None, None
    # A bias whose gradient is a sum over keys or queries is served exactly as it is.
    summed = bias_grad and (
        exactness.sums_over_keys(options.bias, keys) or exactness.sums_over_rows(options.bias, rows)
    )
    if options.exact_gradients and not (exact or summed):
        tensors = (dout, dlse, q, k, v, out, lse)
        less = corrected(*tensors, scale=scale, packed=packed, options=options, **mask)
    if alike and not exact:
        tensors = (dout, dlse if less is None else less, q, k, v, out, lse)
        marked = less is not None
        found = _specialised(*tensors, seen, marked, scale=scale, packed=packed, **mask)
    if found is None:
        found = backward.launch(
            dout,
            dlse,
            q,
            k,
            v,
            out,
            lse,
            scale=scale,
            packed=packed,
            options=options,
            bias_grad=bias_grad,
            corrected=less,
            **mask,
        )
    if packed is not None and out.numel() and k.numel():
        dq, dk, dv = found[:3]
        if exact:
            packed_rest.clear_gradients(dq, dk, dv, packed.queries, packed.keys)
        else:
            inputs = (dout[0], dlse, q[0], k[0], v[0])
            few = exactness.FEW_KEYS
            short_sequences.launch(
                *inputs, [dq, dk, dv], packed, options, few=few, scale=scale, **mask
            )
    return found


def corrected(
    dout: torch.Tensor,
    dlse: torch.Tensor | None,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    *,
    options: Options,
    scale: float,
    **mask: Any,
) -> torch.Tensor | None:
    """As ``backward_exact.launch`` returns it, by the kernel of this architecture where one takes
    the problem."""
    tensors = (dout, dlse, q, k, v, out, lse)
    if v.shape[3] == q.shape[3] and options.plain and out.numel() and k.numel():
        with targets.on_device_of(q, "q"):
            name = "attention.hopper.backward.heavy_rows.launch"
            hopper = backends.load(name) if targets.current().has_wgmma else None
            if hopper is not None and hopper.supported(q, k, v, dout, scale, **mask):
                found = torch.empty_like(lse)
                given = (*tensors, found)
                if backends.serves(name, hopper.launch, *given, scale=scale, **mask):
                    return found
    return backward_exact.launch(*tensors, scale=scale, options=options, **mask)


def _specialised(
    dout: torch.Tensor,
    dlse: torch.Tensor | None,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    seen: int,
    marked: bool,
    *,
    scale: float,
    **mask: Any,
) -> list[torch.Tensor] | None:
    """Gradients of q, k and v by kernels of this architecture, None where none serves."""
    packed = mask["packed"]
    with targets.on_device_of(q, "q"):
        name = "attention.hopper.backward.launch"
        hopper = backends.load(name) if targets.current().has_wgmma else None
        if (
            hopper is None
            or not hopper.supported(q, k, v, dout, scale, **mask)
            or not hopper.faster(
                q, k, seen, windowed=mask["left_offset"] is not None, packed=packed
            )
        ):
            return None
        gradients = [
            torch.empty_like(
                one if packed is None else one[0], memory_format=torch.contiguous_format
            )
            for one in (q, k, v)
        ]
        tensors = hopper.Tensors(dout, dlse, q, k, v, out, lse, *gradients, marked)
        served = backends.serves(name, hopper.launch, tensors, scale=scale, **mask)
        return gradients if served else None
