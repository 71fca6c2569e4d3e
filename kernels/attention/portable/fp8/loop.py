"""The loop over keys of the forward pass in fp8, as portable/forward/loop.py has it in 16 bits."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.attention.common.scores import tanh
from kernels.attention.portable.loads import load_keys


@triton.jit
def attend_fp8(
    b_q,
    b_out,
    b_max,
    b_sum,
    k,
    v,
    o_first,
    o_end,
    o_row,
    strides,
    seqlen_k,
    causal_offset,
    left_offset,
    scale_log,
    softcap,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_V: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    CAUSAL: tl.constexpr,
    MASKED: tl.constexpr,
    PRESCALE: tl.constexpr,
    OFFSET: tl.constexpr,
):
    """Let the rows from ``o_row`` on see the keys from ``o_first`` up to ``o_end``.

    As ``forward_keys.attend``; without MASKED every row sees every one of them. With ``softcap``
    scores s become softcap * tanh(s / softcap), both in powers of 2, and PRESCALE is set.
    """
    o_m = tl.arange(0, BLOCK_M)
    o_n = tl.arange(0, BLOCK_N)
    o_d = tl.arange(0, BLOCK_D)
    o_dv = tl.arange(0, BLOCK_DV)
    in_d = o_d < HEAD_DIM
    in_dv = o_dv < HEAD_DIM_V
    o_k = o_d[:, None] * strides.k.column + o_n[None, :] * strides.k.row
    o_v = o_n[:, None] * strides.v.row + o_dv[None, :] * strides.v.column
    for i_n in range(o_first, o_end, BLOCK_N):
        in_n = o_n < seqlen_k - i_n
        # [BLOCK_D, BLOCK_N]
        b_k = load_keys(k + o_k, in_d[:, None], in_n[None, :], MASKED, BLOCK_D == HEAD_DIM)
        b_s = tl.dot(b_q, b_k)
        if softcap is not None:
            b_s = tanh(b_s, scale_log / softcap, False) * softcap
        elif PRESCALE:
            b_s *= scale_log
        if MASKED:
            seen = in_n[None, :]
            if CAUSAL:
                seen = seen & (i_n + o_n[None, :] <= o_row + o_m[:, None] + causal_offset)
            if left_offset is not None:
                seen = seen & (i_n + o_n[None, :] >= o_row + o_m[:, None] + left_offset)
            b_s = tl.where(seen, b_s, float("-inf"))

        scale = 1.0 if PRESCALE else scale_log
        b_max_new = tl.maximum(b_max, tl.max(b_s, 1) * scale)
        b_shift = b_max_new
        if MASKED:
            # A row that has seen no key yet has -inf as maximum: subtract 0, or NaN would arise.
            b_shift = tl.where(b_max_new == float("-inf"), 0.0, b_max_new)
        b_p = tl.exp2(b_s * scale - (b_shift - OFFSET)[:, None])
        b_alpha = tl.exp2(b_max - b_shift)
        # Of the weights before they are rounded: the log-sum-exp does not see fp8.
        b_sum = b_sum * b_alpha + tl.sum(b_p, 1)
        b_out = b_out * b_alpha[:, None]
        b_max = b_max_new
        # [BLOCK_N, BLOCK_DV]
        b_v = load_keys(v + o_v, in_dv[None, :], in_n[:, None], MASKED, BLOCK_DV == HEAD_DIM_V)
        # Not as the product's accumulator: while Hopper's fp8 products add, they keep 14 bits. So
        # the keys of a block are added there, and the blocks in fp32.
        b_out += tl.dot(b_p.to(b_v.dtype), b_v)
        k += BLOCK_N * strides.k.row
        v += BLOCK_N * strides.v.row
    return b_out, b_max, b_sum
