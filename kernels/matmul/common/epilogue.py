"""How matmul kernels walk the tiles of C, and what happens to a tile before it is written."""

from __future__ import annotations

import triton
import triton.language as tl

from .activation import apply_activation


@triton.jit
def tile_of_program(i_program, n_tiles_m, n_tiles_n, GROUP_M: tl.constexpr):
    """Walk GROUP_M rows of tiles together, so that they find B's columns in L2."""
    per_group = GROUP_M * n_tiles_n
    i_group = i_program // per_group
    first_m = i_group * GROUP_M
    rows = min(n_tiles_m - first_m, GROUP_M)
    i_m = first_m + (i_program % per_group) % rows
    i_n = (i_program % per_group) // rows
    return i_m, i_n


@triton.jit
def store_tile(
    c,
    bias,
    residual,
    b_c,
    o_first,
    in_m,
    N,
    stride_cm,
    stride_cn,
    stride_rm,
    stride_rn,
    HAS_BIAS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    """Write columns ``o_first`` and on of C, whose rows ``c`` begins at, through the epilogue:
    bias, activation, then the residual, whose rows ``residual`` begins at."""
    o_m = tl.arange(0, b_c.shape[0])
    o_n = tl.arange(0, b_c.shape[1])
    in_n = o_n < N - o_first
    if HAS_BIAS:
        b_bias = tl.load(bias + o_first + o_n, mask=in_n, other=0.0)
        b_c += b_bias[None, :].to(tl.float32)
    b_c = apply_activation(b_c, ACTIVATION, c.dtype.element_ty)
    if HAS_RESIDUAL:
        p_r = (
            residual
            + o_first.to(tl.int64) * stride_rn
            + (o_m[:, None] * stride_rm + o_n[None, :] * stride_rn)
        )
        b_r = tl.load(p_r, mask=in_m[:, None] & in_n[None, :], other=0.0)
        b_c += b_r.to(tl.float32)
    p_c = (
        c + o_first.to(tl.int64) * stride_cn + (o_m[:, None] * stride_cm + o_n[None, :] * stride_cn)
    )
    tl.store(p_c, b_c.to(c.dtype.element_ty), mask=in_m[:, None] & in_n[None, :])


@triton.jit
def store_parts(
    c,
    bias,
    residual,
    b_c,
    o_first,
    in_m,
    N,
    stride_cm,
    stride_cn,
    stride_rm,
    stride_rn,
    HAS_BIAS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    ACTIVATION: tl.constexpr,
    PARTS: tl.constexpr,
):
    """``store_tile`` for PARTS column parts in turn, a power of two."""
    if PARTS == 1:
        store_tile(
            c,
            bias,
            residual,
            b_c,
            o_first,
            in_m,
            N,
            stride_cm,
            stride_cn,
            stride_rm,
            stride_rn,
            HAS_BIAS,
            HAS_RESIDUAL,
            ACTIVATION,
        )
    else:
        HALF: tl.constexpr = b_c.shape[1] // 2
        REST: tl.constexpr = PARTS // 2
        b_0, b_1 = tl.split(tl.trans(tl.reshape(b_c, [b_c.shape[0], 2, HALF]), 0, 2, 1))
        o_1 = o_first + HALF
        store_parts(
            c,
            bias,
            residual,
            b_0,
            o_first,
            in_m,
            N,
            stride_cm,
            stride_cn,
            stride_rm,
            stride_rn,
            HAS_BIAS,
            HAS_RESIDUAL,
            ACTIVATION,
            REST,
        )
        store_parts(
            c,
            bias,
            residual,
            b_1,
            o_1,
            in_m,
            N,
            stride_cm,
            stride_cn,
            stride_rm,
            stride_rn,
            HAS_BIAS,
            HAS_RESIDUAL,
            ACTIVATION,
            REST,
        )
