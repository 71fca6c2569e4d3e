"""A product in fp32 precision from three products in tf32, of narrow weights."""

import torch
import triton
import triton.language as tl

ROWS, COLUMNS, K = 1024, 64, 1024
BLOCK_M, BLOCK_K, STAGES = 64, 128, 3


@triton.jit
def threefold_kernel(x, w, y, K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, N: tl.constexpr):
    o_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    o_n, o_k = tl.arange(0, N), tl.arange(0, BLOCK_K)
    b_y = tl.zeros((BLOCK_M, N), tl.float32)
    for k in range(0, K, BLOCK_K):
        b_x = tl.load(x + o_m[:, None] * K + (k + o_k)[None, :])
        b_w = tl.load(w + o_n[:, None] * K + (k + o_k)[None, :])
        b_y = tl.dot(b_x.to(tl.float32), b_w.T, b_y, input_precision="tf32x3")
    tl.store(y + o_m[:, None] * N + o_n[None, :], b_y)


def call():
    x = torch.empty((ROWS, K), dtype=torch.bfloat16, device="cuda")
    w = torch.empty((COLUMNS, K), dtype=torch.float32, device="cuda")
    y = torch.empty((ROWS, COLUMNS), dtype=torch.float32, device="cuda")
    threefold_kernel[(ROWS // BLOCK_M,)](
        x, w, y, K, BLOCK_M, BLOCK_K, COLUMNS, num_warps=4, num_stages=STAGES
    )
    return y
