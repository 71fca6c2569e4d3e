"""The matmul every target runs: one tile of C a program, loads through TMA or pointers."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents

from kernels.device.configurations import constants
from kernels.device.products import add_product, nearest_tf32, sum_type
from kernels.matmul.common import combine_splits
from kernels.matmul.common.epilogue import (
    Epilogue,
    Pitch,
    Product,
    store_parts,
    tile_of_program,
    wide_pitch,
)
from kernels.matmul.common.tuning import MatmulConfig, choose
from kernels.runtime import targets
from kernels.runtime.addressing import far
from kernels.runtime.descriptors import TensorDescriptor, describable
from kernels.runtime.launch import noted

from .operands import load_described, pointers_to


@triton.jit
def matmul_kernel(
    a,
    b,
    c,
    bias,
    residual,
    M,
    N,
    K,
    a_pitch,
    b_pitch,
    c_pitch,
    residual_pitch,
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
):
    """One tile of C. With TMA, a and b are descriptors, of the transpose where it is the
    transpose that has rows of stride 1; their strides are then not used. With SPLIT, axis 1 of the
    grid cuts K, and each part writes a C of its own; they lie one after the other. EARLY lets the
    launch behind this one start. FAR: offsets within a tile need 64 bits."""
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
            b_a = tl.load(p_a, mask=in_m[:, None] & in_k[None, :], other=0.0)
            b_b = tl.load(p_b, mask=in_k[:, None] & in_n[None, :], other=0.0)
            p_a += BLOCK_K * a_pitch.column
            p_b += BLOCK_K * b_pitch.row
        if PRECISION == "tf32":
            b_c = tl.dot(nearest_tf32(b_a), nearest_tf32(b_b), b_c, input_precision="tf32")
        else:
            b_c = add_product(b_c, b_a, b_b)

    b_c = b_c.to(tl.float32)
    # The error function, and the residual beside the largest tile, need registers that a large
    # tile leaves none of: parts in turn.
    PARTS: tl.constexpr = (
        max(BLOCK_M * BLOCK_N // 16384, 2)
        if ACTIVATION == "gelu"
        else max(BLOCK_M * BLOCK_N // 32768, 1)
        if residual is not None
        else 1
    )
    epilogue = Epilogue(bias, residual, c_pitch, residual_pitch)
    store_parts(c, b_c, i_n * BLOCK_N, in_m, N, epilogue, ACTIVATION, PARTS)


def tiled(product: Product, config: MatmulConfig) -> tuple[tuple[int, int], dict[str, Any]]:
    """The grid, and by name what kernels of tiles take: ``c`` is ``out`` unless K is split. What is
    added, and the activation, come after the parts."""
    a, b, out, bias, activation, residual = product
    M, N, K = product.sizes
    c, split = out, config.splits > 1
    if split:
        c = torch.empty((config.splits, M, N), dtype=torch.float32, device=a.device)
        bias, activation, residual = None, None, None
    a_rows = describable_rows(a, (config.block_m, config.block_k)) if config.tma else None
    b_rows = describable_rows(b, (config.block_k, config.block_n)) if config.tma else None
    tma = a_rows is not None and b_rows is not None
    added = (None, None) if residual is None else residual.stride()
    strides = (a.stride(), b.stride(), c.stride()[-2:], added)
    names = ("a_pitch", "b_pitch", "c_pitch", "residual_pitch")
    given: dict[str, Any] = {
        "a": a_rows if tma else a,
        "b": b_rows if tma else b,
        "c": c,
        "bias": bias,
        "residual": residual,
        "M": M,
        "N": N,
        "K": K,
        **{name: Pitch(*one) for name, one in zip(names, strides, strict=True)},
        **constants(config, "block_m", "block_n", "block_k", "group_m"),
        "ACTIVATION": activation or "none",
        "TMA": tma,
        "A_TRANSPOSED": tma and a.stride(1) != 1,
        "B_TRANSPOSED": tma and b.stride(1) != 1,
        "SPLIT": split,
        "FAR": far(config, *strides),
        **config.options(),
    }
    tiles = triton.cdiv(M, config.block_m) * triton.cdiv(N, config.block_n)
    return (tiles, config.splits), given


def launch(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    allow_tf32: bool,
    residual: torch.Tensor | None = None,
) -> None:
    """``out = activation(a @ b + bias) + residual`` for checked arguments."""
    with targets.on_device_of(a):
        target = targets.current()
        use_tf32 = allow_tf32 and a.dtype == torch.float32 and target.has_tf32
        (M, K), N = a.shape, b.shape[1]
        config = choose(target, M, N, K, a.dtype, use_tf32=use_tf32)
        product = Product(a, b, out, bias, activation, residual)
        grid, given = tiled(product, config)
        split = config.splits > 1
        noted(matmul_kernel, grid if split else grid[:1])(
            **given,
            PRECISION="tf32" if use_tf32 else "ieee",
            EARLY=split and target.overlaps_launches,
        )
        if split:
            combine_splits.launch(given["c"], product)


def describable_rows(matrix: torch.Tensor, block: tuple[int, int]) -> TensorDescriptor | None:
    """A descriptor of the matrix, else of its transpose, else None."""
    if describable(matrix):
        return TensorDescriptor.from_tensor(matrix, list(block))
    if describable(matrix.t()):
        return TensorDescriptor.from_tensor(matrix.t(), [block[1], block[0]])
    return None
