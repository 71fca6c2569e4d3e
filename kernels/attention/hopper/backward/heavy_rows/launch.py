"""The launch on Hopper of what corrects gradients of rows of one heavy weight."""

from __future__ import annotations

import torch
import triton

from kernels.attention.common.addressing import near
from kernels.attention.common.numerics.constants import LOG2_E
from kernels.attention.common.packed.sequences import Packed
from kernels.attention.hopper.descriptors import copyable, described
from kernels.attention.hopper.forward.launch import ROWS
from kernels.attention.hopper.forward.launch import supported as supported_forward
from kernels.runtime import targets
from kernels.runtime.launch import noted

from .kernel import attention_backward_hopper_marked
from .plan import BLOCK_M, MOST, SOME

# Columns in shared memory: keys a step, and stages of Q and dO, K, and V.
CUTS = {64: (128, 2, 3, 3), 128: (128, 1, 2, 2), 256: (64, 1, 2, 1)}


def supported(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dout: torch.Tensor,
    scale: float,
    *,
    causal: bool = True,
    left_offset: int | None = None,
    packed: Packed | None = None,
    **_: int,
) -> bool:
    """Whether this kernel takes the problem: what Hopper's forward pass takes, at head dims from 33
    on and in causal windows, and ``dout`` as the copy engine wants it."""
    return (
        (causal or left_offset is None)
        and q.shape[3] > 32
        and supported_forward(q, k, v, scale, packed)
        and copyable(dout if packed is None else dout[:1])
    )


def launch(
    dout: torch.Tensor,
    dlse: torch.Tensor | None,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    corrected: torch.Tensor,
    *,
    causal: bool,
    causal_offset: int,
    left_offset: int | None,
    scale: float,
    packed: Packed | None = None,
) -> None:
    """Fill ``corrected`` as ``backward_exact.launch`` does, for what ``supported`` accepts."""
    batch, seqlen_q, heads, head_dim = q.shape
    seqlen_k, kv_heads = k.shape[1], k.shape[2]
    out = near(out)
    columns = next(one for one in CUTS if head_dim <= one)
    block_n, q_stages, k_stages, v_stages = CUTS[columns]
    tokens = seqlen_q
    if packed is not None:
        seqlen_q, seqlen_k = packed.max_q, packed.max_k

    with targets.on_device_of(q):
        blocks = triton.cdiv(seqlen_q, BLOCK_M.value)
        count = blocks * batch * heads
        programs = min(count, targets.multiprocessors())
        programs = max(programs, triton.cdiv(count, SOME.value * MOST.value))
        noted(attention_backward_hopper_marked, (programs,))(
            described(packed, q, ROWS, columns),
            described(packed, k, block_n, columns),
            described(packed, v, block_n, columns),
            described(packed, dout, ROWS, columns),
            out,
            lse,
            dlse,
            corrected,
            None if packed is None else packed.queries,
            None if packed is None else packed.keys,
            *out.stride(),
            blocks,
            count,
            heads,
            heads // kv_heads,
            seqlen_q,
            seqlen_k,
            tokens,
            causal_offset,
            left_offset,
            head_dim,
            scale * LOG2_E,
            BLOCK_N=block_n,
            HEAD_DIM=columns,
            Q_STAGES=q_stages,
            K_STAGES=k_stages,
            V_STAGES=v_stages,
            CAUSAL=causal,
            IN_TURNS=columns <= 128,  # wider, both wait for the one stage of V
            num_warps=4,
        )
