"""The matmul every target runs: one tile of C a program, loads through TMA or pointers."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .. import targets
from ..descriptors import TensorDescriptor, describable
from .configs import choose


@triton.jit
def apply_activation(x, ACTIVATION: tl.constexpr):
    if ACTIVATION == "relu":
        x = tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
    elif ACTIVATION == "gelu":
        x = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    elif ACTIVATION == "silu":
        x = x / (1.0 + tl.exp(-x))
    return x


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
    b_c,
    o_first,
    in_m,
    N,
    stride_cm,
    stride_cn,
    HAS_BIAS: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    """Write columns ``o_first`` and on of C, whose rows ``c`` begins at, through the epilogue."""
    o_m = tl.arange(0, b_c.shape[0])
    o_n = tl.arange(0, b_c.shape[1])
    in_n = o_n < N - o_first
    if HAS_BIAS:
        b_bias = tl.load(bias + o_first + o_n, mask=in_n, other=0.0)
        b_c += b_bias[None, :].to(tl.float32)
    b_c = apply_activation(b_c, ACTIVATION)
    p_c = (
        c + o_first.to(tl.int64) * stride_cn + (o_m[:, None] * stride_cm + o_n[None, :] * stride_cn)
    )
    tl.store(p_c, b_c.to(c.dtype.element_ty), mask=in_m[:, None] & in_n[None, :])


@triton.jit
def store_parts(
    c,
    bias,
    b_c,
    o_first,
    in_m,
    N,
    stride_cm,
    stride_cn,
    HAS_BIAS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    PARTS: tl.constexpr,
):
    """``store_tile`` for PARTS column parts in turn, a power of two."""
    if PARTS == 1:
        store_tile(c, bias, b_c, o_first, in_m, N, stride_cm, stride_cn, HAS_BIAS, ACTIVATION)
    else:
        HALF: tl.constexpr = b_c.shape[1] // 2
        REST: tl.constexpr = PARTS // 2
        b_0, b_1 = tl.split(tl.trans(tl.reshape(b_c, [b_c.shape[0], 2, HALF]), 0, 2, 1))
        o_1 = o_first + HALF
        store_parts(
            c, bias, b_0, o_first, in_m, N, stride_cm, stride_cn, HAS_BIAS, ACTIVATION, REST
        )
        store_parts(c, bias, b_1, o_1, in_m, N, stride_cm, stride_cn, HAS_BIAS, ACTIVATION, REST)


@triton.jit
def matmul_kernel(
    a,
    b,
    c,
    bias,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
    TMA: tl.constexpr,
    A_TRANSPOSED: tl.constexpr,
    B_TRANSPOSED: tl.constexpr,
):
    """One tile of C. With TMA, a and b are descriptors, of the transpose where it is the
    transpose that has rows of stride 1; their strides are then not used."""
    i_m, i_n = tile_of_program(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    # The 64-bit part of every address is one scalar; offsets within a tile fit 32 bits.
    c += (i_m * BLOCK_M).to(tl.int64) * stride_cm
    o_m = tl.arange(0, BLOCK_M)
    o_n = tl.arange(0, BLOCK_N)
    o_k = tl.arange(0, BLOCK_K)
    in_m = o_m < M - i_m * BLOCK_M
    in_n = o_n < N - i_n * BLOCK_N
    if not TMA:
        a += (i_m * BLOCK_M).to(tl.int64) * stride_am
        b += (i_n * BLOCK_N).to(tl.int64) * stride_bn
        # [BLOCK_M, BLOCK_K], [BLOCK_K, BLOCK_N]
        p_a = a + (o_m[:, None] * stride_am + o_k[None, :] * stride_ak)
        p_b = b + (o_k[:, None] * stride_bk + o_n[None, :] * stride_bn)

    b_c = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    # At least one pass, which the compiler must know: where the loop may not run at all, ptxas
    # serialises wgmma around the accumulator (advisory C7515). Masks make the pass harmless.
    for i_k in range(0, tl.maximum(tl.cdiv(K, BLOCK_K), 1)):
        if TMA:
            if A_TRANSPOSED:
                b_a = a.load([i_k * BLOCK_K, i_m * BLOCK_M]).T
            else:
                b_a = a.load([i_m * BLOCK_M, i_k * BLOCK_K])
            if B_TRANSPOSED:
                b_b = b.load([i_n * BLOCK_N, i_k * BLOCK_K]).T
            else:
                b_b = b.load([i_k * BLOCK_K, i_n * BLOCK_N])
        else:
            in_k = o_k < K - i_k * BLOCK_K
            b_a = tl.load(p_a, mask=in_m[:, None] & in_k[None, :], other=0.0)
            b_b = tl.load(p_b, mask=in_k[:, None] & in_n[None, :], other=0.0)
            p_a += BLOCK_K * stride_ak
            p_b += BLOCK_K * stride_bk
        b_c = tl.dot(b_a, b_b, b_c, input_precision=PRECISION)

    # The error function needs registers that a large tile leaves none of: parts in turn.
    PARTS: tl.constexpr = max(BLOCK_M * BLOCK_N // 16384, 2) if ACTIVATION == "gelu" else 1
    store_parts(
        c, bias, b_c, i_n * BLOCK_N, in_m, N, stride_cm, stride_cn, HAS_BIAS, ACTIVATION, PARTS
    )


def launch(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    allow_tf32: bool,
) -> None:
    """``out = activation(a @ b + bias)`` for checked arguments."""
    M, K = a.shape
    N = b.shape[1]
    with targets.on_device_of(a):
        target = targets.current()
        use_tf32 = allow_tf32 and a.dtype == torch.float32 and target.has_tf32
        config = choose(target, M, N, a.dtype, use_tf32=use_tf32)
        grid = (triton.cdiv(M, config.block_m) * triton.cdiv(N, config.block_n),)
        a_rows = describable_rows(a, (config.block_m, config.block_k)) if config.tma else None
        b_rows = describable_rows(b, (config.block_k, config.block_n)) if config.tma else None
        tma = a_rows is not None and b_rows is not None
        matmul_kernel[grid](
            a_rows if tma else a,
            b_rows if tma else b,
            out,
            bias,
            M,
            N,
            K,
            *a.stride(),
            *b.stride(),
            *out.stride(),
            BLOCK_M=config.block_m,
            BLOCK_N=config.block_n,
            BLOCK_K=config.block_k,
            GROUP_M=config.group_m,
            HAS_BIAS=bias is not None,
            ACTIVATION=activation or "none",
            PRECISION="tf32" if use_tf32 else "ieee",
            TMA=tma,
            A_TRANSPOSED=tma and a.stride(1) != 1,
            B_TRANSPOSED=tma and b.stride(1) != 1,
            **config.options(),
        )


def describable_rows(matrix: torch.Tensor, block: tuple[int, int]) -> TensorDescriptor | None:
    """A descriptor of the matrix, else of its transpose, else None."""
    if describable(matrix):
        return TensorDescriptor.from_tensor(matrix, list(block))
    if describable(matrix.t()):
        return TensorDescriptor.from_tensor(matrix.t(), [block[1], block[0]])
    return None
