"""A copy of an fp32 operand as Hopper's matrix unit multiplies it: rounded to tf32, along K."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents

from kernels.device.products import nearest_tf32
from kernels.runtime.launch import noted

BLOCK = 32  # columns and values of K a program


@triton.jit(do_not_specialize=["N"])
def tf32_copy(b, copy, N, K, stride_bk, stride_bn, pitch, BLOCK: tl.constexpr):
    """copy: (N, pitch) of b: (K, N), rounded to the nearest tf32. A square a program; the launch
    behind this one may start."""
    gdc_launch_dependents()
    n_tiles_k = tl.cdiv(K, BLOCK)
    i_n = (tl.program_id(0) // n_tiles_k).to(tl.int64) * BLOCK
    i_k = (tl.program_id(0) % n_tiles_k).to(tl.int64) * BLOCK
    o = tl.arange(0, BLOCK)
    in_n = o < N - i_n
    in_k = o < K - i_k
    p_b = b + i_k * stride_bk + i_n * stride_bn + (o[:, None] * stride_bk + o[None, :] * stride_bn)
    mask = in_k[:, None] & in_n[None, :]
    b_x = tl.load(p_b, mask=mask, other=0.0, eviction_policy="evict_first")
    b_x = tl.trans(nearest_tf32(b_x))
    p_copy = copy + i_n * pitch + i_k + (o[:, None] * pitch + o[None, :])
    tl.store(p_copy, b_x, mask=in_n[:, None] & in_k[None, :])


def launch(b: torch.Tensor) -> torch.Tensor:
    """(N, K) of b, (K, N) in fp32: rounded to the nearest tf32, neighbours along K."""
    K, N = b.shape
    pitch = triton.cdiv(K, 32) * 32  # whole lines of memory
    copy = torch.empty((N, pitch), dtype=b.dtype, device=b.device)
    grid = (triton.cdiv(N, BLOCK) * triton.cdiv(K, BLOCK),)
    noted(tf32_copy, grid)(b, copy, N, K, *b.stride(), pitch, BLOCK=BLOCK, num_warps=4)
    return copy[:, :K]
