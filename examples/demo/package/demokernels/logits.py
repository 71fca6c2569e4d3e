"""Hidden states times the language model's head, in fp32."""

import torch
import triton
import triton.language as tl

BLOCK_M, BLOCK_N, BLOCK_K = 64, 128, 64


@triton.jit
def logits_kernel(
    x,
    head,
    out,
    D: tl.constexpr,
    V,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    o_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    o_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    b_out = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for k in range(0, D, BLOCK_K):
        o_k = k + tl.arange(0, BLOCK_K)
        b_x = tl.load(x + o_m[:, None] * D + o_k[None, :])
        b_w = tl.load(head + o_k[:, None] * V + o_n[None, :])
        b_out = tl.dot(b_x, b_w, b_out)
    tl.store(out + o_m[:, None] * V + o_n[None, :], b_out)


def logits(x, head):
    M, D = x.shape
    V = head.shape[1]
    out = torch.empty((M, V), dtype=torch.float32, device=x.device)
    grid = (M // BLOCK_M, V // BLOCK_N)
    logits_kernel[grid](
        x,
        head,
        out,
        D,
        V,
        BLOCK_M=BLOCK_M,
        BLOCK_N=BLOCK_N,
        BLOCK_K=BLOCK_K,
        num_warps=8,
        num_stages=2,
    )
    return out
