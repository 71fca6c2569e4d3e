"""Which back end serves a forward pass in 16 or 32 bits."""

from __future__ import annotations

from typing import Any

import torch

from kernels.attention.common.numerics.heavy_rows import all_marked
from kernels.attention.common.options import Options
from kernels.attention.common.packed.sequences import Packed
from kernels.attention.decode import few_queries
from kernels.attention.portable.forward import kernel as forward
from kernels.runtime import backends, targets


def launch(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor | None,
    rows: torch.Tensor | None,
    options: Options,
    *,
    scale: float,
    packed: Packed | None = None,
    **mask: Any,
) -> None:
    """The kernel of this architecture where there is one and it takes the problem. ``lse`` and
    ``rows`` as ``forward.launch`` takes them."""
    with targets.on_device_of(q, "q"):
        few = packed is None and options.plain
        if few and few_queries.supported(q, k, v, scale, mask["left_offset"]):
            found = rows if lse is None else lse
            assert found is not None
            few_queries.launch(q, k, v, out, found, scale=scale, **mask)
            if rows is not None:  # of parts of a row no largest weight is known
                rows.copy_(all_marked(found))
            return
        given: dict[str, Any] = {"scale": scale, "packed": packed, **mask}
        alike = v.shape[3] == q.shape[3] and options.plain
        if not alike or not backends.specialised(
            "attention.hopper.forward.launch",
            lambda hopper: hopper.supported(q, k, v, **given),
            lambda hopper: hopper.launch(q, k, v, out, lse, rows=rows, **given),
        ):
            forward.launch(q, k, v, out, lse, rows=rows, options=options, **given)
