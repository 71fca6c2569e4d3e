"""The second pass of a product whose K was split: adds the parts, always in the same order."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

from kernels.runtime import targets
from kernels.runtime.addressing import LIMIT, wide
from kernels.runtime.launch import noted

from .epilogue import Epilogue, Pitch, Product, store_tile

BLOCK_N = 256  # columns of one row a program: 8 values a thread, and programs for a whole GPU


@triton.jit
def combine_kernel(
    parts,
    c,
    bias,
    residual,
    N,
    c_pitch,
    residual_pitch,
    PARTS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    ACTIVATION: tl.constexpr,
    AFTER: tl.constexpr,
    FAR: tl.constexpr,
):
    """BLOCK_N columns of one row of C from ``parts``, contiguous (PARTS, M, N) in fp32. AFTER waits
    for what the launch before wrote, which had let this one start. FAR: see portable/kernel.py."""
    if FAR:
        c_pitch = Pitch(c_pitch.row, wide(c_pitch.column))
        if residual is not None:
            residual_pitch = Pitch(residual_pitch.row, wide(residual_pitch.column))
    if AFTER:
        gdc_wait()
    i_m = tl.program_id(0).to(tl.int64)
    o_first = tl.program_id(1) * BLOCK_N
    o_n = tl.arange(0, BLOCK_N)
    p_part = parts + i_m * N + o_first + o_n
    in_n = o_n < N - o_first
    # [BLOCK_N]. Unrolled: the loads wait for memory together, the sum keeps its order.
    b_c = tl.load(p_part, mask=in_n, other=0.0)
    for _ in tl.static_range(1, PARTS):
        p_part += tl.num_programs(0).to(tl.int64) * N
        b_c += tl.load(p_part, mask=in_n, other=0.0)
    if residual is not None:
        residual += i_m * residual_pitch.row
    epilogue = Epilogue(bias, residual, c_pitch, residual_pitch)
    in_m = tl.full([1], 1, tl.int1)
    store_tile(c + i_m * c_pitch.row, b_c[None, :], o_first, in_m, N, epilogue, ACTIVATION)


def launch(parts: torch.Tensor, product: Product) -> None:
    """The end of a ``product`` by the sum of ``parts``: contiguous (parts, M, N)."""
    (count, M, N), (_, _, out, bias, activation, residual) = parts.shape, product
    after = targets.current().overlaps_launches
    noted(combine_kernel, (M, triton.cdiv(N, BLOCK_N)))(
        parts,
        out,
        bias,
        residual,
        N,
        Pitch(*out.stride()),
        Pitch() if residual is None else Pitch(*residual.stride()),
        PARTS=count,
        BLOCK_N=BLOCK_N,
        ACTIVATION=activation or "none",
        AFTER=after,
        FAR=max(out.stride(1), 0 if residual is None else residual.stride(1)) * BLOCK_N >= LIMIT,
        num_warps=1,
        **({"launch_pdl": True} if after else {}),
    )
