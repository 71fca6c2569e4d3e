"""The launch on Hopper of what corrects gradients of rows of one heavy weight."""

from __future__ import annotations

import torch
import triton

from kernels.attention.common.addressing import Strides, near
from kernels.attention.common.numerics.constants import LOG2_E
from kernels.attention.common.problem import Given, Problem
from kernels.attention.hopper.descriptors import copyable, described
from kernels.attention.hopper.forward.launch import ROWS, copied
from kernels.runtime import targets
from kernels.runtime.launch import noted

from .kernel import attention_backward_hopper_marked
from .plan import BLOCK_M, MOST, SOME

# Columns in shared memory: keys a step, and stages of Q and dO, K, and V.
CUTS = {64: (128, 2, 3, 3), 128: (128, 1, 2, 2), 256: (64, 1, 2, 1)}


def supported(problem: Problem, dout: torch.Tensor) -> bool:
    """Whether this kernel takes the problem: what Hopper's forward pass takes, at head dims from 33
    on and in causal windows, and ``dout`` as the copy engine wants it."""
    return (
        (problem.mask.causal or problem.mask.left is None)
        and problem.q.shape[3] > 32
        and copied(problem)
        and copyable(dout if problem.packed is None else dout[:1])
    )


def launch(problem: Problem, given: Given, corrected: torch.Tensor) -> None:
    """Fill ``corrected`` as ``backward_exact.launch`` does, for what ``supported`` accepts."""
    q, packed, (causal, causal_offset, left_offset) = problem.q, problem.packed, problem.mask
    (seqlen_q, seqlen_k), heads, head_dim = problem.lengths, problem.heads, q.shape[3]
    dout, out = given.dout, near(given.out)
    columns = next(one for one in CUTS if head_dim <= one)
    block_n, q_stages, k_stages, v_stages = CUTS[columns]

    with targets.on_device_of(q):
        blocks = triton.cdiv(seqlen_q, BLOCK_M.value)
        count = blocks * problem.batch * heads
        programs = min(count, targets.multiprocessors())
        programs = max(programs, triton.cdiv(count, SOME.value * MOST.value))
        noted(attention_backward_hopper_marked, (programs,))(
            described(packed, q, ROWS, columns),
            described(packed, problem.k, block_n, columns),
            described(packed, problem.v, block_n, columns),
            described(packed, dout, ROWS, columns),
            out,
            given.lse,
            given.dlse,
            corrected,
            *problem.sequences,
            Strides(*out.stride()),
            blocks,
            count,
            heads,
            heads // problem.kv_heads,
            seqlen_q,
            seqlen_k,
            q.shape[1],
            causal_offset,
            left_offset,
            head_dim,
            problem.scale * LOG2_E,
            BLOCK_N=block_n,
            HEAD_DIM=columns,
            Q_STAGES=q_stages,
            K_STAGES=k_stages,
            V_STAGES=v_stages,
            CAUSAL=causal,
            IN_TURNS=columns <= 128,  # wider, both wait for the one stage of V
            num_warps=4,
        )
