"""Launches of Hopper's backward pass where sequences are short: two kernels that share nothing.

Each gradient is added up by one program, as above head dim 128 (hopper/backward/wide/launch.py).
Scores and dp are multiplied twice, seven products instead of five. But nothing of keys and values
is read before, the rows' deltas are made where dq is, and no sums of dq are set to 0, added to in
L2 and read again: what takes as long however few keys a query sees.
"""

from __future__ import annotations

import torch
import triton

from kernels.attention.common.numerics.constants import LOG2_E
from kernels.attention.common.problem import Found, Given, Problem
from kernels.attention.hopper.descriptors import descriptor, numbers
from kernels.attention.hopper.forward.launch import ROWS
from kernels.runtime import targets
from kernels.runtime.launch import noted

from .key_grads import attention_backward_hopper_short_kv
from .query_grads import attention_backward_hopper_short_q

BLOCK_D = 128  # columns in shared memory, zeros behind head_dim
# Tiles a program has, from which on causal tiles of a head follow each other: there are enough of
# them for programs to be equally busy, and the head stays in L2. With fewer the longest come first.
MANY_TURNS = 6


def launch(problem: Problem, given: Given, found: Found, *, marked: bool, stages: int) -> None:
    """As hopper_backward_launch.launch, which calls it for head dims from 65 to 128."""
    q, k, v, (dout, dlse, out, lse), (dq, dk, dv) = problem.q, problem.k, problem.v, given, found
    scale, mask = problem.scale, problem.mask
    batch, seqlen_q, heads, head_dim = q.shape
    seqlen_k, kv_heads = k.shape[1], k.shape[2]
    all_rows = batch * heads * triton.cdiv(seqlen_q, ROWS) * ROWS
    rows = torch.empty((2, all_rows), dtype=torch.float32, device=q.device)
    sizes = (heads, kv_heads, batch, seqlen_q, seqlen_k, *mask[1:])
    scales = (scale, scale * LOG2_E)
    plain_causal = mask.causal and mask.left is None
    shape = {"HEAD_DIM": BLOCK_D, "STAGES": stages, "CAUSAL": mask.causal, "num_warps": 4}
    with targets.on_device_of(q):
        programs = targets.multiprocessors()
        tiles = [descriptor(one, ROWS, BLOCK_D) for one in (q, k, v, dout)]
        n = triton.cdiv(seqlen_q, 2 * ROWS) * batch * heads
        out = out if out.stride(3) == 1 else out.contiguous()
        noted(attention_backward_hopper_short_q, (min(programs, n),))(
            *tiles,
            out,
            lse,
            dlse,
            rows,
            descriptor(dq, ROWS, BLOCK_D),
            out.stride()[:3],
            *sizes,
            *scales,
            OUT_DIM=head_dim,
            MARKED=marked,
            BY_HEAD=not mask.causal or n >= MANY_TURNS * programs,
            **shape,
        )
        n = triton.cdiv(seqlen_k, 2 * ROWS) * batch * kv_heads
        noted(attention_backward_hopper_short_kv, (min(programs, n),))(
            *tiles,
            numbers(rows, ROWS),
            descriptor(dk if plain_causal else dk.transpose(0, 2), ROWS, BLOCK_D),
            descriptor(dv, ROWS, BLOCK_D),
            *sizes,
            *scales,
            BY_HEAD=not mask.causal or n >= MANY_TURNS * programs,
            **shape,
            launch_pdl=True,
        )
