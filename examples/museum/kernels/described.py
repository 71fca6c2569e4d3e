"""The largest value of each column of a tile that a descriptor loads."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

ROWS, COLUMNS = 8192, 8192
BLOCK_M, BLOCK_N = 32, 128


@triton.jit
def largest_kernel(x, y, COLUMNS, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    i, j = tl.program_id(0), tl.program_id(1)
    b_x = x.load([i * BLOCK_M, j * BLOCK_N])
    o_n = j * BLOCK_N + tl.arange(0, BLOCK_N)
    tl.store(y + i * COLUMNS + o_n, tl.max(b_x, 0))


def call():
    x = torch.empty((ROWS, COLUMNS), dtype=torch.float16, device="cuda")
    y = torch.empty((ROWS // BLOCK_M, COLUMNS), dtype=torch.float16, device="cuda")
    described = TensorDescriptor.from_tensor(x, [BLOCK_M, BLOCK_N])
    grid = (ROWS // BLOCK_M, COLUMNS // BLOCK_N)
    largest_kernel[grid](described, y, COLUMNS, BLOCK_M, BLOCK_N, num_warps=4)
    return y
