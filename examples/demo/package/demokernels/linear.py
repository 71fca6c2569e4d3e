"""``gelu(x @ w + bias)`` in one launch."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from .gpu import has_tma

BLOCK_M, BLOCK_N, BLOCK_K = 128, 128, 64


@triton.jit
def gelu(x):
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def linear_kernel(
    x,
    w,
    bias,
    y,
    K: tl.constexpr,
    N,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    TMA: tl.constexpr,
):
    i_m = tl.program_id(0)
    i_n = tl.program_id(1)
    o_m = i_m * BLOCK_M + tl.arange(0, BLOCK_M)
    o_n = i_n * BLOCK_N + tl.arange(0, BLOCK_N)
    o_k = tl.arange(0, BLOCK_K)
    b_y = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        if TMA:
            b_x = x.load([i_m * BLOCK_M, k])
            b_w = w.load([k, i_n * BLOCK_N])
        else:
            b_x = tl.load(x + o_m[:, None] * K + (k + o_k)[None, :])
            b_w = tl.load(w + (k + o_k)[:, None] * N + o_n[None, :])
        b_y = tl.dot(b_x, b_w, b_y)
    b_y += tl.load(bias + o_n)[None, :]
    b_y = gelu(b_y)
    tl.store(y + o_m[:, None] * N + o_n[None, :], b_y.to(y.dtype.element_ty))


def linear(x, w, bias):
    M, K = x.shape
    N = w.shape[1]
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    tma = has_tma()
    if tma:
        x = TensorDescriptor.from_tensor(x, [BLOCK_M, BLOCK_K])
        w = TensorDescriptor.from_tensor(w, [BLOCK_K, BLOCK_N])
    grid = (M // BLOCK_M, N // BLOCK_N)
    linear_kernel[grid](
        x,
        w,
        bias,
        y,
        K,
        N,
        BLOCK_M=BLOCK_M,
        BLOCK_N=BLOCK_N,
        BLOCK_K=BLOCK_K,
        TMA=tma,
        num_warps=8,
        num_stages=3 if tma else 2,
    )
    return y
