"""Matrix multiplication, one tile of the product a program."""

import torch
import triton
import triton.language as tl

from .gpu import arch

TILES = {
    "sm_80": {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32, "num_warps": 4, "num_stages": 4},
    "sm_90": {"BLOCK_M": 64, "BLOCK_N": 256, "BLOCK_K": 64, "num_warps": 8, "num_stages": 3},
    "gfx942": {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "num_warps": 4, "num_stages": 2},
}


@triton.jit
def matmul_kernel(
    a,
    b,
    c,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    i_m = tl.program_id(0)
    i_n = tl.program_id(1)
    o_m = i_m * BLOCK_M + tl.arange(0, BLOCK_M)
    o_n = i_n * BLOCK_N + tl.arange(0, BLOCK_N)
    o_k = tl.arange(0, BLOCK_K)
    p_a = a + o_m[:, None] * K + o_k[None, :]
    p_b = b + o_k[:, None] * N + o_n[None, :]
    b_c = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    # At least one step: ptxas then knows that the accumulator is written.
    for _ in range(tl.maximum(tl.cdiv(K, BLOCK_K), 1)):
        b_a = tl.load(p_a)
        b_b = tl.load(p_b)
        # Held below the largest bf16, or one overflow makes later sums NaN.
        b_c = tl.minimum(tl.dot(b_a, b_b, b_c), 3.3e38)
        p_a += BLOCK_K
        p_b += BLOCK_K * N
    p_c = c + o_m[:, None] * N + o_n[None, :]
    tl.store(p_c, b_c.to(c.dtype.element_ty))


def matmul(a, b):
    M, K = a.shape
    N = b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    tile = TILES[arch()]
    grid = (M // tile["BLOCK_M"], N // tile["BLOCK_N"])
    matmul_kernel[grid](a, b, c, M, N, K, **tile)
    return c
