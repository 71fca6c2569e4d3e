"""The forward pass in fp8 (e4m3): both products on the fp8 tensor cores, the softmax in fp32.

Weights are rounded to e4m3 before they meet the values. They lie between 0 and 1, where e4m3 has
few steps, so they are computed 2^OFFSET times as large: the largest is then the largest power of
two the flavour holds, and what rounds to zero is at most 2^-18 of it. The row sum carries the same
factor, so that it cancels in the output and costs one subtraction in the log-sum-exp.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.attention.common.addressing import Layout
from kernels.attention.common.columns import padded
from kernels.attention.common.masks import keys_of_rows
from kernels.attention.common.numerics.constants import LOG2_E, TO_BASE_E
from kernels.attention.common.numerics.fp8_scales import (
    OFFSET,
    Scales,
    no_zero,
    scale_of,
    with_sign,
)
from kernels.attention.common.packed.sequences import Packed, bounds
from kernels.attention.common.problem import Mask, Problem
from kernels.attention.portable.tuning.fp8 import choose_fp8
from kernels.runtime import targets
from kernels.runtime.launch import noted

from .loop import attend_fp8


@triton.jit
def attention_forward_fp8(
    q,
    k,
    v,
    out,
    lse,
    sequences,
    scales,
    scale_strides,
    strides,
    heads,
    heads_per_kv,
    seqlen_q,
    seqlen_k,
    tokens,
    causal_offset,
    left_offset,
    scale_log,
    softcap,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_V: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    CAUSAL: tl.constexpr,
    EVEN: tl.constexpr,
    PRESCALE: tl.constexpr,
    OFFSET: tl.constexpr,
):
    """Masks, blocks and packed sequences as ``forward.attention_forward`` has them.

    ``scales`` are read here, never on the host: a launch does not wait for what computed them.
    ``softcap`` as the loop takes it, or None.
    """
    cu_q, cu_k = sequences
    n_blocks = tl.cdiv(seqlen_q, BLOCK_M)
    i_m = tl.program_id(0) % n_blocks
    i_bh = tl.program_id(0) // n_blocks
    i_b = i_bh // heads
    i_h = i_bh % heads
    i_kv = i_h // heads_per_kv

    o_lse = i_bh.to(tl.int64) * seqlen_q
    if cu_q is not None:
        o_q, seqlen_q = bounds(cu_q, i_b)
        o_k, seqlen_k = bounds(cu_k, i_b)
        if i_m * BLOCK_M >= seqlen_q:
            return
        q += o_q.to(tl.int64) * strides.q.row
        k += o_k.to(tl.int64) * strides.k.row
        v += o_k.to(tl.int64) * strides.v.row
        out += o_q.to(tl.int64) * strides.out.row
        o_lse = i_h.to(tl.int64) * tokens + o_q
        causal_offset += seqlen_k - seqlen_q
        if left_offset is not None:
            left_offset += seqlen_k - seqlen_q
    if scales.q is not None:
        scale_log *= scale_of(scales.q, i_b, i_h, scale_strides.q)
    if scales.k is not None:
        scale_log *= scale_of(scales.k, i_b, i_kv, scale_strides.k)
    # The 64-bit part of every address is one scalar; offsets within a tile fit 32 bits.
    i_row = (i_m * BLOCK_M).to(tl.int64)
    out += (
        i_b.to(tl.int64) * strides.out.batch
        + i_h.to(tl.int64) * strides.out.head
        + i_row * strides.out.row
    )
    lse += o_lse + i_row

    o_m = tl.arange(0, BLOCK_M)
    o_d = tl.arange(0, BLOCK_D)
    o_dv = tl.arange(0, BLOCK_DV)
    in_m = o_m < seqlen_q - i_m * BLOCK_M
    in_d = o_d < HEAD_DIM
    in_dv = o_dv < HEAD_DIM_V

    k += i_b.to(tl.int64) * strides.k.batch + i_kv.to(tl.int64) * strides.k.head
    v += i_b.to(tl.int64) * strides.v.batch + i_kv.to(tl.int64) * strides.v.head
    # [BLOCK_M, BLOCK_D]
    q += (
        i_b.to(tl.int64) * strides.q.batch
        + i_h.to(tl.int64) * strides.q.head
        + i_row * strides.q.row
    )
    b_q = tl.load(
        q + (o_m[:, None] * strides.q.row + o_d[None, :] * strides.q.column),
        mask=in_m[:, None] & in_d[None, :],
        other=0.0,
    )
    if not PRESCALE and (scales.q is not None or scales.k is not None):
        b_q = with_sign(b_q, scale_log)
        scale_log = no_zero(tl.abs(scale_log))

    b_max = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    b_sum = tl.zeros([BLOCK_M], dtype=tl.float32)
    b_out = tl.zeros([BLOCK_M, BLOCK_DV], dtype=tl.float32)

    # Keys any row of this block sees, and of those the whole blocks every row sees.
    o_row = i_m * BLOCK_M
    o_end, o_full = keys_of_rows(o_row, seqlen_k, causal_offset, CAUSAL, BLOCK_M, BLOCK_N)
    o_inner = 0
    k_inner = k
    v_inner = v
    if left_offset is not None:
        # Before the whole blocks, those whose first keys some rows no longer see.
        o_first = tl.maximum(o_row + left_offset, 0) // BLOCK_N * BLOCK_N
        o_inner = tl.cdiv(tl.maximum(o_row + BLOCK_M - 1 + left_offset, 0), BLOCK_N) * BLOCK_N
        o_full = tl.maximum(o_full, o_inner)
        k_first = k + o_first.to(tl.int64) * strides.k.row
        v_first = v + o_first.to(tl.int64) * strides.v.row
        k_inner += o_inner.to(tl.int64) * strides.k.row
        v_inner += o_inner.to(tl.int64) * strides.v.row
        b_out, b_max, b_sum = attend_fp8(
            b_q, b_out, b_max, b_sum, k_first, v_first, o_first, tl.minimum(o_inner, o_end), o_row,
            strides, seqlen_k, causal_offset, left_offset, scale_log, softcap, HEAD_DIM, HEAD_DIM_V,
            BLOCK_M, BLOCK_N, BLOCK_D, BLOCK_DV, CAUSAL, True, PRESCALE, OFFSET,
        )  # fmt: skip
    b_out, b_max, b_sum = attend_fp8(
        b_q, b_out, b_max, b_sum, k_inner, v_inner, o_inner, o_full, o_row, strides, seqlen_k,
        causal_offset, left_offset, scale_log, softcap, HEAD_DIM, HEAD_DIM_V, BLOCK_M, BLOCK_N,
        BLOCK_D, BLOCK_DV, CAUSAL, False, PRESCALE, OFFSET,
    )  # fmt: skip
    if CAUSAL or not EVEN:
        k += o_full.to(tl.int64) * strides.k.row
        v += o_full.to(tl.int64) * strides.v.row
        b_out, b_max, b_sum = attend_fp8(
            b_q, b_out, b_max, b_sum, k, v, o_full, o_end, o_row, strides, seqlen_k, causal_offset,
            left_offset, scale_log, softcap, HEAD_DIM, HEAD_DIM_V, BLOCK_M, BLOCK_N, BLOCK_D,
            BLOCK_DV, CAUSAL, True, PRESCALE, OFFSET,
        )  # fmt: skip

    # A fully masked row has sum 0: its output is 0 and its log-sum-exp -inf.
    b_factor = 1.0 / tl.where(b_sum == 0.0, 1.0, b_sum)
    if scales.v is not None:
        b_factor *= scale_of(scales.v, i_b, i_kv, scale_strides.v)
    b_out = b_out * b_factor[:, None]
    b_lse = (b_max + (tl.log2(b_sum) - OFFSET)) * TO_BASE_E
    b_lse = tl.where(b_sum == 0.0, float("-inf"), b_lse)
    tl.store(lse + o_m, b_lse, mask=in_m)
    tl.store(
        out + o_m[:, None] * strides.out.row + o_dv[None, :] * strides.out.column,
        b_out.to(out.dtype.element_ty),
        mask=in_m[:, None] & in_dv[None, :],
    )


def launch(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    *,
    scales: Scales,
    causal: bool,
    causal_offset: int,
    left_offset: int | None,
    scale: float,
    softcap: float | None = None,
    packed: Packed | None = None,
) -> None:
    """Fill ``out`` and ``lse`` for checked arguments of layout (batch, seqlen, heads, head_dim).

    A ``NotImplementedError`` says so where the hardware has no fp8, a ``ValueError`` where it has
    another flavour of it.
    """
    problem = Problem(q, k, v, Mask(causal, causal_offset, left_offset), scale, packed).near()
    q, k, v = problem.q, problem.k, problem.v
    (seqlen_q, seqlen_k), (head_dim, head_dim_v) = problem.lengths, problem.head_dims
    # The tensor cores take 32 values of fp8 at a time.
    block_d, block_dv = max(32, padded(head_dim)), max(32, padded(head_dim_v))
    with targets.on_device_of(q):
        target = targets.current()
        refuse_other_flavours(q, target)
        config = choose_fp8(target, max(head_dim, head_dim_v))
        grid = (triton.cdiv(seqlen_q, config.block_m) * problem.batch * problem.heads,)
        noted(attention_forward_fp8, grid)(
            q=q,
            k=k,
            v=v,
            out=out,
            lse=lse,
            sequences=problem.sequences,
            scales=scales,
            scale_strides=scales.strides(),
            strides=Layout.of(q=q, k=k, v=v, out=out),
            heads=problem.heads,
            **problem.sizes,
            causal_offset=causal_offset,
            left_offset=left_offset,
            scale_log=scale * LOG2_E,
            softcap=None if softcap is None else softcap * LOG2_E,
            HEAD_DIM=head_dim,
            HEAD_DIM_V=head_dim_v,
            BLOCK_M=config.block_m,
            BLOCK_N=config.block_n,
            BLOCK_D=block_d,
            BLOCK_DV=block_dv,
            CAUSAL=causal,
            EVEN=packed is None and seqlen_k % config.block_n == 0,
            PRESCALE=softcap is not None or not scale > 0.0,
            OFFSET=OFFSET[q.dtype],
            **config.options(),
        )


def refuse_other_flavours(q: torch.Tensor, target: targets.Target) -> None:
    """One sentence where ``target`` has no tensor cores for the dtype of ``q``."""
    name = str(q.dtype).removeprefix("torch.")
    if not target.fp8_dtypes:
        raise NotImplementedError(
            f"q: expected fp16, bf16 or fp32 on {target.name}, which has no fp8 tensor cores, got "
            f"{name}; multiply by the scales and convert with q.to(torch.bfloat16)"
        )
    if q.dtype not in target.fp8_dtypes:
        known = " or ".join(str(one).removeprefix("torch.") for one in target.fp8_dtypes)
        raise ValueError(
            f"q: expected dtype {known}, the fp8 that {target.name} has, got {name}; convert from "
            f"the unquantised tensor with .to(torch.{known}), with scales for its range"
        )
