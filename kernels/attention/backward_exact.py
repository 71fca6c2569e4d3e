"""Gradients of 16 bits without the rounding of the output, for who asks for ``exact_gradients``.

All kernels of gradients take delta as rowsum(out * dout) - dlse, where out is rounded to 16 bits.
In a row one of whose weights is near 1 that rounding is most of what dp - delta holds. So a launch
before them finds delta from products that nothing rounded, and they run as they are, with an out
of zeros and -delta in the place of dlse: not even another order of that sum is left in theirs.
"""

from __future__ import annotations

import torch
import triton

from .. import targets
from .backward_rows import attention_backward_rows
from .configs import choose_rows, columns
from .options import PLAIN, Options
from .packed import Packed
from .reach import near


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
) -> torch.Tensor | None:
    """-delta, which kernels take in place of dlse beside an out of ``zeros``, as lse lies;
    unwritten in rows of no packed sequence. None where there is nothing to correct."""
    if not out.numel() or not k.numel():
        return None
    q, k, v, out, dout = (near(one) for one in (q, k, v, out, dout))
    batch, seqlen_q, heads, head_dim = q.shape
    seqlen_k, kv_heads = k.shape[1], k.shape[2]
    head_dim_v = v.shape[3]
    tokens = seqlen_q if packed else None
    sequences = (packed.cu_q, packed.cu_k) if packed else (None, None)
    if packed is not None:
        seqlen_q, seqlen_k = packed.max_q, packed.max_k
    scores = (batch, heads, seqlen_q, seqlen_k)
    corrected = torch.empty_like(lse)
    with targets.on_device_of(q, "q"):
        target = targets.current()
        block_d, block_dv = columns(target, q.dtype, head_dim, head_dim_v)
        config = choose_rows(target, max(block_d, block_dv), scored=not options.plain)
        blocks = triton.cdiv(seqlen_q, config.block_m)
        attention_backward_rows[(blocks * batch * heads,)](
            q,
            k,
            v,
            out,
            dout,
            dlse,
            lse,
            None,
            None,
            corrected,
            None,
            *sequences,
            *q.stride(),
            *k.stride(),
            *v.stride(),
            *dout.stride(),
            *out.stride(),
            blocks,
            heads,
            heads // kv_heads,
            seqlen_q,
            seqlen_k,
            tokens,
            causal_offset,
            left_offset,
            scale,
            *options.arguments(scale, scores),
            *options.listed(causal_offset if causal else None, left_offset),
            HEAD_DIM=head_dim,
            HEAD_DIM_V=head_dim_v,
            BLOCK_M=config.block_m,
            BLOCK_N=config.block_n,
            BLOCK_D=block_d,
            BLOCK_DV=block_dv,
            CAUSAL=causal,
            CORRECTS=True,
            **config.options(),
        )
    return corrected


def zeros(out: torch.Tensor) -> torch.Tensor:
    """As ``out``, but one row of zeros everywhere."""
    return out.new_zeros(out.shape[3]).expand(out.shape)
