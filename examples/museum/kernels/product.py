"""A product of matrices, one tile a program, as most packages write it."""

import torch
import triton
import triton.language as tl

M, N, K = 2048, 2048, 1024
TILE = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP": 8, "num_warps": 4, "num_stages": 3}


@triton.jit
def product_kernel(
    a,
    b,
    c,
    M,
    N,
    K,
    stride_a,
    stride_b,
    stride_c,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    # Neighbouring programs share rows of a and columns of b, so that L2 serves most of them.
    i = tl.program_id(0)
    columns = tl.cdiv(N, BLOCK_N)
    first = i // (GROUP * columns) * GROUP
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP)
    i_m = first + i % (GROUP * columns) % height
    i_n = i % (GROUP * columns) // height
    o_m = i_m * BLOCK_M + tl.arange(0, BLOCK_M)
    o_n = i_n * BLOCK_N + tl.arange(0, BLOCK_N)
    o_k = tl.arange(0, BLOCK_K)
    b_c = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        b_a = tl.load(a + o_m[:, None] * stride_a + (k + o_k)[None, :])
        b_b = tl.load(b + (k + o_k)[:, None] * stride_b + o_n[None, :])
        b_c = tl.dot(b_a, b_b, b_c)
    tl.store(c + o_m[:, None] * stride_c + o_n[None, :], b_c.to(c.dtype.element_ty))


def product(a, b):
    c = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    tiles = triton.cdiv(M, TILE["BLOCK_M"]) * triton.cdiv(N, TILE["BLOCK_N"])
    product_kernel[(tiles,)](a, b, c, M, N, K, a.stride(0), b.stride(0), c.stride(0), **TILE)
    return c


def call():
    a = torch.empty((M, K), dtype=torch.float16, device="cuda")
    b = torch.empty((K, N), dtype=torch.float16, device="cuda")
    return product(a, b)
