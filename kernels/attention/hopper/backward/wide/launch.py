"""Launches of Hopper's backward pass at head dims above 128: two kernels that share nothing.

dk and dv of 64 keys take half of a multiprocessor's registers. What such a program would add to dq
at every step, 64 KB in fp32, passes through shared memory twice: as long as two of the five
products take. So scores and dp are multiplied in both kernels instead, seven products, and neither
adds to what another program adds to.
"""

from __future__ import annotations

import torch
import triton

from kernels.attention.common.addressing import Layout, Strides
from kernels.attention.common.numerics.constants import LOG2_E
from kernels.attention.common.problem import Found, Given, Problem
from kernels.attention.hopper.backward.row_stats import attention_backward_hopper_prepare
from kernels.attention.hopper.descriptors import descriptor, numbers
from kernels.attention.hopper.forward.launch import ROWS
from kernels.runtime import targets
from kernels.runtime.launch import noted

from .key_grads import attention_backward_hopper_kv
from .query_grads import attention_backward_hopper_q

BLOCK = 64  # keys or queries a step: the M of wgmma
BLOCK_D = 256  # columns in shared memory, zeros behind head_dim
L2_BYTES = 32 << 20  # what heads walked together may fill of it


def heads_together(heads: int, a_head: int, *, causal: bool) -> int:
    """Of how many of ``heads`` the longest programs of a causal pass come before all shorter ones:
    as many as L2 holds what they walk at a time, ``a_head`` bytes of each, all chunks alike. The
    longest programs of a last chunk of few heads would end long after all others."""
    if not causal:
        return 1
    chunks = triton.cdiv(heads, max(1, L2_BYTES // a_head))
    return triton.cdiv(heads, chunks)


def launch(problem: Problem, given: Given, found: Found, *, marked: bool, stages: int) -> None:
    """As hopper_backward_launch.launch, which calls it."""
    q, k, v, (dout, dlse, out, lse), (dq, dk, dv) = problem.q, problem.k, problem.v, given, found
    scale, mask = problem.scale, problem.mask
    batch, seqlen_q, heads, head_dim = q.shape
    seqlen_k, kv_heads = k.shape[1], k.shape[2]
    n_m, n_n = triton.cdiv(seqlen_q, BLOCK), triton.cdiv(seqlen_k, BLOCK)
    all_rows = batch * heads * n_m * BLOCK
    rows = torch.empty((2, all_rows), dtype=torch.float32, device=q.device)
    # Programs walk q and dout of a head of keys' query heads one after the other; or k and v.
    together_kv, together_q = (
        heads_together(batch * count, walked * BLOCK_D * 4, causal=mask.causal)
        for count, walked in ((kv_heads, seqlen_q), (heads, seqlen_k))
    )
    sizes = (heads, kv_heads, batch, seqlen_q, seqlen_k, *mask[1:])
    scales = (scale, scale * LOG2_E)
    shape = {"BLOCK_N": BLOCK, "HEAD_DIM": BLOCK_D, "CAUSAL": mask.causal}
    with targets.on_device_of(q):
        noted(attention_backward_hopper_prepare, (n_m * batch * heads,))(
            k, v, out, dout, lse, dlse, None, rows, None, None, None,
            Layout.of(k=k, v=v, out=out), Strides(*dout.stride()),
            batch, heads, kv_heads, seqlen_q, seqlen_k,
            HEAD_DIM=head_dim, BLOCK_M=BLOCK, BLOCK_N=BLOCK, BLOCK_D=BLOCK_D,
            MARKED=marked, num_warps=8,
        )  # fmt: skip
        tiles = [descriptor(one, BLOCK, BLOCK_D) for one in (q, k, v, dout)]
        noted(attention_backward_hopper_kv, (n_n * batch * kv_heads,))(
            *tiles,
            numbers(rows, BLOCK),
            descriptor(dk, BLOCK, BLOCK_D),
            descriptor(dv, BLOCK, BLOCK_D),
            *sizes,
            together_kv,
            *scales,
            BLOCK_M=BLOCK,
            STAGES=stages,
            **shape,
            num_warps=4,
            launch_pdl=True,
        )
        noted(attention_backward_hopper_q, (triton.cdiv(seqlen_q, 2 * ROWS) * batch * heads,))(
            *tiles,
            rows,
            descriptor(dq, ROWS, BLOCK_D),
            *sizes,
            together_q,
            n_m * BLOCK,
            *scales,
            **shape,
            num_warps=4,
            launch_pdl=True,
        )
