"""Attention that sees no key after its query, one block of queries a program."""

import torch
import triton
import triton.language as tl

HEADS, LENGTH, D = 16, 2048, 64
TILE = {"BLOCK_M": 64, "BLOCK_N": 64, "num_warps": 4, "num_stages": 2}
LOG2_E = 1.44269504


@triton.jit
def attention_kernel(
    q,
    k,
    v,
    out,
    length,
    scale,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    i_m, i_h = tl.program_id(0), tl.program_id(1)
    o_m = i_m * BLOCK_M + tl.arange(0, BLOCK_M)
    o_n = tl.arange(0, BLOCK_N)
    o_d = tl.arange(0, D)
    start = i_h * length * D
    b_q = tl.load(q + start + o_m[:, None] * D + o_d[None, :])
    b_out = tl.zeros((BLOCK_M, D), tl.float32)
    b_max = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    b_sum = tl.zeros((BLOCK_M,), tl.float32)
    last = tl.minimum((i_m + 1) * BLOCK_M, length)
    for n in range(0, last, BLOCK_N):
        b_k = tl.load(k + start + (n + o_n)[None, :] * D + o_d[:, None])
        b_s = tl.dot(b_q, b_k) * scale
        b_s = tl.where(o_m[:, None] >= (n + o_n)[None, :], b_s, float("-inf"))
        b_new = tl.maximum(b_max, tl.max(b_s, 1))
        b_p = tl.exp2(b_s - b_new[:, None])
        b_shrunk = tl.exp2(b_max - b_new)
        b_sum = b_sum * b_shrunk + tl.sum(b_p, 1)
        b_v = tl.load(v + start + (n + o_n)[:, None] * D + o_d[None, :])
        b_out = tl.dot(b_p.to(v.dtype.element_ty), b_v, b_out * b_shrunk[:, None])
        b_max = b_new
    b_out = b_out / b_sum[:, None]
    tl.store(out + start + o_m[:, None] * D + o_d[None, :], b_out.to(out.dtype.element_ty))


def attention(q, k, v):
    out = torch.empty_like(q)
    grid = (triton.cdiv(LENGTH, TILE["BLOCK_M"]), HEADS)
    attention_kernel[grid](q, k, v, out, LENGTH, LOG2_E * D**-0.5, D, **TILE)
    return out


def call():
    q, k, v = (
        torch.empty((HEADS, LENGTH, D), dtype=torch.float16, device="cuda") for _ in range(3)
    )
    return attention(q, k, v)
