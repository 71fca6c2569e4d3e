"""The matmul every target runs: one tile of C a program, loads through TMA or pointers."""

from __future__ import annotations

from dataclasses import replace

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents

from kernels.device.products import add_product, nearest_tf32, sum_type
from kernels.matmul.common import combine_splits
from kernels.matmul.common.epilogue import (
    Epilogue,
    Pitch,
    store_parts,
    tile_of_program,
    wide_pitch,
)
from kernels.matmul.common.product import BLOCK, Product
from kernels.matmul.common.tuning import choose, choose_fp8, multiplies
from kernels.runtime import checks, targets
from kernels.runtime.addressing import far
from kernels.runtime.descriptors import TensorDescriptor, describable
from kernels.runtime.launch import noted

from .operands import decoded, load_described, pointers_to


@triton.jit
def matmul_kernel(
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
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
    TMA: tl.constexpr,
    A_TRANSPOSED: tl.constexpr,
    B_TRANSPOSED: tl.constexpr,
    SPLIT: tl.constexpr,
    EARLY: tl.constexpr,
    FAR: tl.constexpr,
    A_SCALE: tl.constexpr,
    B_SCALE: tl.constexpr,
    DECODE: tl.constexpr,
):
    """One tile of C. With TMA, a and b are descriptors, of the transpose where it is the
    transpose that has rows of stride 1; their strides are then not used. With SPLIT, axis 1 of the
    grid cuts K, and each part writes a C of its own; they lie one after the other. EARLY lets the
    next launch start. FAR: offsets within a tile need 64 bits.

    PRECISION: "ieee"; "tf32", to which fp32 is rounded; of fp8 "fp8", or "promoted", of which a
    block of K is added in the matrix unit, and the blocks in fp32. Scales are of fp8. DECODE: a and
    b are bits of e4m3 as uint8, of the flavour "fn" or "fnuz"."""
    if EARLY:
        gdc_launch_dependents()
    if FAR:
        a_pitch = wide_pitch(a_pitch)
        b_pitch = wide_pitch(b_pitch)
        c_pitch = wide_pitch(c_pitch)
        if residual is not None:
            residual_pitch = wide_pitch(residual_pitch)
    i_m, i_n = tile_of_program(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    # The 64-bit part of every address is one scalar; offsets within a tile fit 32 bits, unless FAR.
    first_k = 0
    if SPLIT:
        steps = tl.cdiv(tl.cdiv(K, BLOCK_K), tl.num_programs(1))
        first_k = tl.program_id(1) * steps
        c += tl.program_id(1).to(tl.int64) * M * N
    c += (i_m * BLOCK_M).to(tl.int64) * c_pitch.row
    if residual is not None:
        residual += (i_m * BLOCK_M).to(tl.int64) * residual_pitch.row
    o_m = tl.arange(0, BLOCK_M)
    o_n = tl.arange(0, BLOCK_N)
    o_k = tl.arange(0, BLOCK_K)
    in_m = o_m < M - i_m * BLOCK_M
    in_n = o_n < N - i_n * BLOCK_N
    if not TMA:
        p_a, p_b = pointers_to(a, b, i_m, i_n, first_k, o_m, o_n, o_k, a_pitch, b_pitch, SPLIT)
    if A_SCALE != "none":
        p_sa = a_scale + (i_m * BLOCK_M).to(tl.int64) * a_scale_pitch.row + o_m * a_scale_pitch.row
    if B_SCALE == "outer":
        p_sb = b_scale + (i_n * BLOCK_N).to(tl.int64) * b_scale_pitch.column
        p_sb += o_n * b_scale_pitch.column
    elif B_SCALE == "blocks":
        # A tile lies within one block of columns.
        p_sb = b_scale + (i_n * BLOCK_N // BLOCK).to(tl.int64) * b_scale_pitch.column

    if TMA or PRECISION == "tf32":
        b_c = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    else:
        b_c = tl.zeros([BLOCK_M, BLOCK_N], dtype=sum_type(a.dtype.element_ty))
    # At least one pass, which the compiler must know: where the loop may not run at all, ptxas
    # serialises wgmma around the accumulator (advisory C7515). Masks make the pass harmless.
    last_k = first_k + tl.maximum(steps, 1) if SPLIT else tl.maximum(tl.cdiv(K, BLOCK_K), 1)
    for i_k in range(first_k, last_k):
        if TMA:
            b_a, b_b = load_described(
                a, b, i_m * BLOCK_M, i_n * BLOCK_N, i_k * BLOCK_K, A_TRANSPOSED, B_TRANSPOSED
            )
        else:
            in_k = o_k < K - i_k * BLOCK_K
            NOTHING: tl.constexpr = 0.0 if DECODE == "none" else 0
            b_a = tl.load(p_a, mask=in_m[:, None] & in_k[None, :], other=NOTHING)
            b_b = tl.load(p_b, mask=in_k[:, None] & in_n[None, :], other=NOTHING)
            p_a += BLOCK_K * a_pitch.column
            p_b += BLOCK_K * b_pitch.row
        if DECODE != "none":
            b_a = decoded(b_a, DECODE == "fnuz")
            b_b = decoded(b_b, DECODE == "fnuz")
        if A_SCALE == "blocks" or B_SCALE == "blocks":
            i_block = i_k * BLOCK_K // BLOCK
            in_scale = i_k * BLOCK_K < K
            b_part = tl.dot(b_a, b_b)
            if A_SCALE == "blocks":
                p_own = p_sa + i_block * a_scale_pitch.column
                b_sa = tl.load(p_own, mask=in_m & in_scale, other=0.0)
                if B_SCALE == "blocks":
                    b_sa *= tl.load(p_sb + i_block * b_scale_pitch.row, mask=in_scale, other=0.0)
                b_c += b_part * b_sa[:, None]
            else:
                p_own = p_sb + i_block * b_scale_pitch.row
                b_c += b_part * tl.load(p_own, mask=in_scale, other=0.0)
        elif PRECISION == "promoted":
            b_c += tl.dot(b_a, b_b)
        elif PRECISION == "tf32":
            b_c = tl.dot(nearest_tf32(b_a), nearest_tf32(b_b), b_c, input_precision="tf32")
        else:
            b_c = add_product(b_c, b_a, b_b)

    b_c = b_c.to(tl.float32)
    if A_SCALE == "outer":
        b_c *= tl.load(p_sa, mask=in_m, other=0.0)[:, None]
    if B_SCALE == "outer":
        b_c *= tl.load(p_sb, mask=in_n, other=0.0)[None, :]
    # The error function, scales, and the residual next to the largest tile need registers that a
    # large tile leaves none of: parts in turn.
    IN_FP8: tl.constexpr = PRECISION == "fp8" or PRECISION == "promoted"
    LEAST: tl.constexpr = 2 if ACTIVATION == "gelu" else 1
    PARTS: tl.constexpr = (
        max(BLOCK_M * BLOCK_N // 16384, LEAST)
        if IN_FP8 or ACTIVATION == "gelu"
        else max(BLOCK_M * BLOCK_N // 32768, 1)
        if residual is not None
        else 1
    )
    epilogue = Epilogue(bias, residual, c_pitch, residual_pitch)
    store_parts(c, b_c, i_n * BLOCK_N, in_m, N, epilogue, ACTIVATION, PARTS)


def launch(product: Product, allow_tf32: bool = False) -> None:
    """Fill its ``out``: by tiles, and the sum of their parts where K is split.

    Where no matrix unit multiplies a flavour of e4m3, every value is decoded to fp16, which holds
    all of e4m3, on its way to the fp16 matrix unit."""
    target, kind, decode, early = targets.current(), product.a.dtype, "none", False
    if checks.is_fp8(kind):
        native = multiplies(target, kind)
        plain = product.residual is None and not product.by_blocks
        config = choose_fp8(target, *product.sizes, native=native, plain=plain)
        # While Hopper's fp8 products add, they keep 14 bits.
        precision = "promoted" if native and target.has_wgmma else "fp8"
        if not native:
            decode = "fnuz" if kind == torch.float8_e4m3fnuz else "fn"
            bits = (product.a.view(torch.uint8), product.b.view(torch.uint8))
            product = replace(product, a=bits[0], b=bits[1])
    else:
        use_tf32 = allow_tf32 and kind == torch.float32 and target.has_tf32
        config = choose(target, *product.sizes, kind, use_tf32=use_tf32)
        precision = "tf32" if use_tf32 else "ieee"
        early = config.splits > 1 and target.overlaps_launches
    (M, N, K), a, b = product.sizes, product.a, product.b
    part, split = product.in_parts(config.splits), config.splits > 1
    c, residual = part.out, part.residual
    a_rows = describable_rows(a, (config.block_m, config.block_k)) if config.tma else None
    b_rows = describable_rows(b, (config.block_k, config.block_n)) if config.tma else None
    tma = a_rows is not None and b_rows is not None
    added = (None, None) if residual is None else residual.stride()
    a_scale, b_scale = product.a_scale, product.b_scale
    strides = (a.stride(), b.stride(), c.stride()[-2:], added)
    tiles = triton.cdiv(M, config.block_m) * triton.cdiv(N, config.block_n)
    noted(matmul_kernel, (tiles, config.splits) if split else (tiles,))(
        a_rows if tma else a,
        b_rows if tma else b,
        c,
        a_scale.values,
        b_scale.values,
        part.bias,
        residual,
        M,
        N,
        K,
        *(Pitch(*one) for one in (*strides, a_scale.strides, b_scale.strides)),
        ACTIVATION=part.activation or "none",
        TMA=tma,
        A_TRANSPOSED=tma and a.stride(1) != 1,
        B_TRANSPOSED=tma and b.stride(1) != 1,
        SPLIT=split,
        FAR=far(config, *strides),
        A_SCALE=a_scale.kind,
        B_SCALE=b_scale.kind,
        PRECISION=precision,
        DECODE=decode,
        EARLY=early,
        **config.constants(),
    )
    if split:
        combine_splits.launch(c, product)


def describable_rows(matrix: torch.Tensor, block: tuple[int, int]) -> TensorDescriptor | None:
    """A descriptor of the matrix, else of its transpose, else None."""
    if describable(matrix):
        return TensorDescriptor.from_tensor(matrix, list(block))
    if describable(matrix.t()):
        return TensorDescriptor.from_tensor(matrix.t(), [block[1], block[0]])
    return None
