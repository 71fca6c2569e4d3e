"""The matmul of fp8 (e4m3) operands: scales of tensors, rows, columns or blocks, sums in fp32.

Where a matrix unit multiplies the operands' flavour of e4m3, it does. Elsewhere every value is
decoded to fp16, which holds all of e4m3 exactly, on its way to the fp16 matrix unit.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.matmul.common import combine_splits
from kernels.matmul.common import tuning as configs
from kernels.matmul.common.epilogue import (
    Epilogue,
    Pitch,
    Product,
    store_parts,
    tile_of_program,
    wide_pitch,
)
from kernels.matmul.common.fp8_scales import BLOCK, Scale
from kernels.runtime import targets
from kernels.runtime.launch import noted

from .kernel import tiled
from .operands import load_described, pointers_to


@triton.jit
def decoded(x, FNUZ: tl.constexpr):
    """The fp16 values of e4m3 bits: exponent and mantissa in their places, the bias by a product,
    which also makes normal numbers of what is subnormal in e4m3."""
    magnitude = x & 0x7F
    bits = ((x & 0x80).to(tl.uint16) << 8) | (magnitude.to(tl.uint16) << 7)
    value = bits.to(tl.float16, bitcast=True) * (128.0 if FNUZ else 256.0)
    is_nan = (x == 0x80) if FNUZ else (magnitude == 0x7F)
    return tl.where(is_nan, float("nan"), value).to(tl.float16)


@triton.jit
def matmul_fp8(
    a,
    b,
    c,
    a_scale,
    b_scale,
    bias,
    residual,
    M,
    N,
    K,
    a_pitch,
    b_pitch,
    c_pitch,
    residual_pitch,
    a_scale_pitch,
    b_scale_pitch,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    A_SCALE: tl.constexpr,
    B_SCALE: tl.constexpr,
    ACTIVATION: tl.constexpr,
    DECODE: tl.constexpr,
    FNUZ: tl.constexpr,
    PROMOTE: tl.constexpr,
    TMA: tl.constexpr,
    A_TRANSPOSED: tl.constexpr,
    B_TRANSPOSED: tl.constexpr,
    SPLIT: tl.constexpr,
    FAR: tl.constexpr,
):
    """One tile of C, as ``portable.matmul_kernel``. DECODE: a and b are e4m3 bits as uint8.
    PROMOTE: what a block of K adds is added in the matrix unit, and the blocks in fp32."""
    if FAR:
        a_pitch = wide_pitch(a_pitch)
        b_pitch = wide_pitch(b_pitch)
        c_pitch = wide_pitch(c_pitch)
        if residual is not None:
            residual_pitch = wide_pitch(residual_pitch)
    i_m, i_n = tile_of_program(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    o_m = tl.arange(0, BLOCK_M)
    o_n = tl.arange(0, BLOCK_N)
    o_k = tl.arange(0, BLOCK_K)
    in_m = o_m < M - i_m * BLOCK_M
    in_n = o_n < N - i_n * BLOCK_N
    steps = tl.cdiv(K, BLOCK_K)
    first_k = 0
    if SPLIT:
        steps = tl.cdiv(steps, tl.num_programs(1))
        first_k = tl.program_id(1) * steps
        c += tl.program_id(1).to(tl.int64) * M * N
    c += (i_m * BLOCK_M).to(tl.int64) * c_pitch.row
    if residual is not None:
        residual += (i_m * BLOCK_M).to(tl.int64) * residual_pitch.row
    if not TMA:
        p_a, p_b = pointers_to(a, b, i_m, i_n, first_k, o_m, o_n, o_k, a_pitch, b_pitch, SPLIT)
    if A_SCALE != "none":
        p_sa = a_scale + (i_m * BLOCK_M).to(tl.int64) * a_scale_pitch.row + o_m * a_scale_pitch.row
    if B_SCALE == "outer":
        p_sb = (
            b_scale
            + (i_n * BLOCK_N).to(tl.int64) * b_scale_pitch.column
            + o_n * b_scale_pitch.column
        )
    elif B_SCALE == "blocks":
        # A tile lies within one block of columns.
        p_sb = b_scale + (i_n * BLOCK_N // BLOCK).to(tl.int64) * b_scale_pitch.column

    b_c = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    # At least one pass: see portable/kernel.py.
    for i_k in range(first_k, first_k + tl.maximum(steps, 1)):
        if TMA:
            b_a, b_b = load_described(
                a, b, i_m * BLOCK_M, i_n * BLOCK_N, i_k * BLOCK_K, A_TRANSPOSED, B_TRANSPOSED
            )
        else:
            in_k = o_k < K - i_k * BLOCK_K
            b_a = tl.load(p_a, mask=in_m[:, None] & in_k[None, :], other=0 if DECODE else 0.0)
            b_b = tl.load(p_b, mask=in_k[:, None] & in_n[None, :], other=0 if DECODE else 0.0)
            p_a += BLOCK_K * a_pitch.column
            p_b += BLOCK_K * b_pitch.row
        if DECODE:
            b_a = decoded(b_a, FNUZ)
            b_b = decoded(b_b, FNUZ)
        if A_SCALE == "blocks" or B_SCALE == "blocks":
            i_block = i_k * BLOCK_K // BLOCK
            in_scale = i_k * BLOCK_K < K
            b_part = tl.dot(b_a, b_b)
            if A_SCALE == "blocks":
                b_sa = tl.load(
                    p_sa + i_block * a_scale_pitch.column, mask=in_m & in_scale, other=0.0
                )
                if B_SCALE == "blocks":
                    b_sa *= tl.load(p_sb + i_block * b_scale_pitch.row, mask=in_scale, other=0.0)
                b_c += b_part * b_sa[:, None]
            else:
                b_c += b_part * tl.load(
                    p_sb + i_block * b_scale_pitch.row, mask=in_scale, other=0.0
                )
        elif PROMOTE:
            b_c += tl.dot(b_a, b_b)
        else:
            b_c = tl.dot(b_a, b_b, b_c)

    if A_SCALE == "outer":
        b_c *= tl.load(p_sa, mask=in_m, other=0.0)[:, None]
    if B_SCALE == "outer":
        b_c *= tl.load(p_sb, mask=in_n, other=0.0)[None, :]
    # A large tile leaves the epilogue few registers, the error function fewer: parts in turn.
    PARTS: tl.constexpr = max(BLOCK_M * BLOCK_N // 16384, 2 if ACTIVATION == "gelu" else 1)
    epilogue = Epilogue(bias, residual, c_pitch, residual_pitch)
    store_parts(c, b_c, i_n * BLOCK_N, in_m, N, epilogue, ACTIVATION, PARTS)


def launch(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    a_scale: Scale,
    b_scale: Scale,
    bias: torch.Tensor | None,
    activation: str | None,
    residual: torch.Tensor | None,
) -> None:
    """``out = activation((a * a_scale) @ (b * b_scale) + bias) + residual``, checked arguments."""
    M, K = a.shape
    N = b.shape[1]
    with targets.on_device_of(a):
        target = targets.current()
        native = configs.multiplies(target, a.dtype)
        plain = residual is None and not (a_scale.blocks or b_scale.blocks)
        config = configs.choose_fp8(target, M, N, K, native=native, plain=plain)
        fnuz = a.dtype == torch.float8_e4m3fnuz
        if not native:
            a, b = a.view(torch.uint8), b.view(torch.uint8)
        product = Product(a, b, out, bias, activation, residual)
        grid, given = tiled(product, config)
        noted(matmul_fp8, grid)(
            **given,
            a_scale=a_scale.values,
            b_scale=b_scale.values,
            a_scale_pitch=Pitch(*a_scale.strides),
            b_scale_pitch=Pitch(*b_scale.strides),
            A_SCALE=a_scale.kind,
            B_SCALE=b_scale.kind,
            DECODE=not native,
            FNUZ=fnuz,
            # While Hopper's fp8 products add, they keep 14 bits.
            PROMOTE=native and target.has_wgmma,
        )
        if config.splits > 1:
            combine_splits.launch(given["c"], product)
