"""Causal attention forward, one block of query rows a program, online softmax."""

import math

import torch
import triton
import triton.language as tl

from .gpu import arch

LOG2_E = 1.4426950408889634

TILES = {
    "sm_80": {"BLOCK_M": 128, "BLOCK_N": 64, "num_warps": 8, "num_stages": 2},
    "sm_90": {"BLOCK_M": 128, "BLOCK_N": 64, "num_warps": 8, "num_stages": 2},
    "gfx90a": {"BLOCK_M": 128, "BLOCK_N": 64, "num_warps": 4, "num_stages": 1, "waves_per_eu": 1},
    "gfx942": {"BLOCK_M": 128, "BLOCK_N": 64, "num_warps": 4, "num_stages": 1, "waves_per_eu": 1},
}


@triton.jit
def attention_kernel(
    q,
    k,
    v,
    out,
    scale_log2,
    seqlen,
    heads,
    stride_batch,
    stride_row,
    stride_head,
    stride_out_batch,
    stride_out_row,
    stride_out_head,
    HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    i_m = tl.program_id(0)
    i_batch = tl.program_id(1) // heads
    i_head = tl.program_id(1) % heads
    base = i_batch * stride_batch + i_head * stride_head
    o_m = i_m * BLOCK_M + tl.arange(0, BLOCK_M)
    o_n = tl.arange(0, BLOCK_N)
    o_d = tl.arange(0, HEAD_DIM)

    b_q = tl.load(q + base + o_m[:, None] * stride_row + o_d[None, :])
    b_out = tl.zeros([BLOCK_M, HEAD_DIM], dtype=tl.float32)
    b_max = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    b_sum = tl.zeros([BLOCK_M], dtype=tl.float32)
    # A row sees no key after itself: later blocks of keys are not read.
    last = tl.minimum((i_m + 1) * BLOCK_M, seqlen)
    for start in range(0, last, BLOCK_N):
        row = (start + o_n) * stride_row
        b_k = tl.load(k + base + row[None, :] + o_d[:, None])
        b_s = tl.dot(b_q, b_k) * scale_log2
        b_s = tl.where(o_m[:, None] >= (start + o_n)[None, :], b_s, float("-inf"))
        b_new = tl.maximum(b_max, tl.max(b_s, 1))
        b_p = tl.exp2(b_s - b_new[:, None])
        b_shrink = tl.exp2(b_max - b_new)
        b_sum = b_sum * b_shrink + tl.sum(b_p, 1)
        b_v = tl.load(v + base + row[:, None] + o_d[None, :])
        b_out = tl.dot(b_p.to(b_v.dtype), b_v, b_out * b_shrink[:, None])
        b_max = b_new
    b_out = b_out / b_sum[:, None]
    p_out = out + i_batch * stride_out_batch + i_head * stride_out_head
    p_out += o_m[:, None] * stride_out_row + o_d[None, :]
    tl.store(p_out, b_out.to(out.dtype.element_ty))


def attention(q, k, v):
    """q, k, v: (batch, seqlen, heads, head_dim)."""
    batch, seqlen, heads, head_dim = q.shape
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    tile = TILES[arch()]
    grid = (seqlen // tile["BLOCK_M"], batch * heads)
    attention_kernel[grid](
        q,
        k,
        v,
        out,
        LOG2_E / math.sqrt(head_dim),
        seqlen,
        heads,
        q.stride(0),
        q.stride(1),
        q.stride(2),
        out.stride(0),
        out.stride(1),
        out.stride(2),
        HEAD_DIM=head_dim,
        **tile,
    )
    return out
