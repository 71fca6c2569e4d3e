"""The gradient of expert weights: a product along the tokens of each group."""

import torch
import triton
import triton.language as tl

GROUPS, TOKENS, M, N = 4, 2048, 512, 512
TILE = {"BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 64, "num_warps": 8, "num_stages": 2}


@triton.jit
def weights_kernel(
    x,
    dy,
    dw,
    offsets,
    M,
    N,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    group = tl.program_id(2)
    first, last = tl.load(offsets + group), tl.load(offsets + group + 1)
    o_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    o_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    b_dw = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(first, last, BLOCK_K):
        o_k = k + tl.arange(0, BLOCK_K)
        inside = o_k < last
        b_x = tl.load(x + o_k[None, :] * M + o_m[:, None], mask=inside[None, :], other=0.0)
        b_dy = tl.load(dy + o_k[:, None] * N + o_n[None, :], mask=inside[:, None], other=0.0)
        b_dw = tl.dot(b_x, b_dy, b_dw)
    at = group * M * N + o_m[:, None] * N + o_n[None, :]
    tl.store(dw + at, b_dw.to(dw.dtype.element_ty))


def call():
    x = torch.empty((TOKENS, M), dtype=torch.bfloat16, device="cuda")
    dy = torch.empty((TOKENS, N), dtype=torch.bfloat16, device="cuda")
    dw = torch.empty((GROUPS, M, N), dtype=torch.bfloat16, device="cuda")
    offsets = torch.arange(0, TOKENS + 1, TOKENS // GROUPS, dtype=torch.int32, device="cuda")
    grid = (M // TILE["BLOCK_M"], N // TILE["BLOCK_N"], GROUPS)
    weights_kernel[grid](x, dy, dw, offsets, M, N, **TILE)
    return dw
