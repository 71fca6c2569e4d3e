"""The gated half of an MLP, ``silu(x @ gate) * (x @ up)``, in one launch."""

import torch
import triton
import triton.language as tl

from .gpu import arch

TILES = {
    "sm_80": {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32},
    "sm_90": {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32},
    "gfx942": {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32},
}


@triton.jit
def gated_kernel(
    x,
    gate,
    up,
    y,
    K: tl.constexpr,
    N,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    o_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    o_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    b_gate = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    b_up = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        o_k = k + tl.arange(0, BLOCK_K)
        b_x = tl.load(x + o_m[:, None] * K + o_k[None, :])
        b_gate = tl.dot(b_x, tl.load(gate + o_k[:, None] * N + o_n[None, :]), b_gate)
        b_up = tl.dot(b_x, tl.load(up + o_k[:, None] * N + o_n[None, :]), b_up)
    b_y = b_gate * tl.sigmoid(b_gate) * b_up
    tl.store(y + o_m[:, None] * N + o_n[None, :], b_y.to(y.dtype.element_ty))


def gated_mlp(x, gate, up):
    M, K = x.shape
    N = gate.shape[1]
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    tile = TILES[arch()]
    grid = (M // tile["BLOCK_M"], N // tile["BLOCK_N"])
    gated_kernel[grid](x, gate, up, y, K, N, **tile, num_warps=4, num_stages=2)
    return y
