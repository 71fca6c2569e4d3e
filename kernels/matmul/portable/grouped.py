"""Products of groups of rows with a matrix each (mixture of experts), and their weights' gradient.

The offsets stay on the device, so the host cannot know how many tiles a group has: the grid is the
most there can be. Group g owns tile slots from ``offsets[g] // BLOCK_M + g`` on, which is never
fewer than its tiles, whatever lies before it; a program finds its group by bisection. Slots that
hold no row do nothing.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.device.products import add_product, sum_type
from kernels.matmul.common.epilogue import Epilogue, Pitch, store_tile, tile_of_program, wide_pitch
from kernels.matmul.common.tuning import choose_grouped
from kernels.runtime import targets
from kernels.runtime.addressing import far
from kernels.runtime.launch import noted


@triton.jit
def offset_of(offsets, i_group, total):
    """Where a group starts; within the tensor, whatever the table says."""
    return tl.minimum(tl.maximum(tl.load(offsets + i_group), 0), total)


@triton.jit
def group_of_slot(offsets, i_slot, groups, total, STEPS: tl.constexpr, BLOCK_M: tl.constexpr):
    """The last group whose slots begin at ``i_slot`` or before; ``groups`` stands for the rows
    after the last group."""
    low = tl.full([], 0, tl.int32)
    high = low + groups
    for _ in tl.static_range(STEPS):
        middle = (low + high + 1) // 2
        reached = offset_of(offsets, middle, total) // BLOCK_M + middle <= i_slot
        low = tl.where(reached, middle, low)
        high = tl.where(reached, high, middle - 1)
    return low


@triton.jit
def _product(a, b, in_m, in_n, depth, a_pitch, b_pitch, BLOCK_K: tl.constexpr):
    """The product of rows of a with columns of b, as many as there are, from where both point."""
    o_m = tl.arange(0, in_m.shape[0])
    o_n = tl.arange(0, in_n.shape[0])
    o_k = tl.arange(0, BLOCK_K)
    # [BLOCK_M, BLOCK_K], [BLOCK_K, BLOCK_N]
    p_a = a + (o_m[:, None] * a_pitch.row + o_k[None, :] * a_pitch.column)
    p_b = b + (o_k[:, None] * b_pitch.row + o_n[None, :] * b_pitch.column)
    b_c = tl.zeros([in_m.shape[0], in_n.shape[0]], dtype=sum_type(a.dtype.element_ty))
    # At least one pass: see portable/kernel.py.
    for i_k in range(0, tl.maximum(tl.cdiv(depth, BLOCK_K), 1)):
        in_k = o_k < depth - i_k * BLOCK_K
        b_a = tl.load(p_a, mask=in_m[:, None] & in_k[None, :], other=0.0)
        b_b = tl.load(p_b, mask=in_k[:, None] & in_n[None, :], other=0.0)
        b_c = add_product(b_c, b_a, b_b)
        p_a += BLOCK_K * a_pitch.column
        p_b += BLOCK_K * b_pitch.row
    return b_c


@triton.jit
def grouped_matmul_kernel(
    a,
    b,
    c,
    offsets,
    groups,
    total,
    n_slots,
    N,
    K,
    a_pitch,
    stride_bg,
    b_pitch,
    c_pitch,
    STEPS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    FAR: tl.constexpr,
):
    """One tile of one group's rows of C; zeros where a row belongs to no group. FAR: see
    portable/kernel.py."""
    if FAR:
        a_pitch = wide_pitch(a_pitch)
        b_pitch = wide_pitch(b_pitch)
        c_pitch = wide_pitch(c_pitch)
    i_slot, i_n = tile_of_program(tl.program_id(0), n_slots, tl.cdiv(N, BLOCK_N), GROUP_M)
    i_group = group_of_slot(offsets, i_slot, groups, total, STEPS, BLOCK_M)
    first = offset_of(offsets, i_group, total)
    has_matrix = i_group < groups
    last = offset_of(offsets, tl.minimum(i_group + 1, groups), total)
    last = tl.where(has_matrix, last, total)
    row = first + (i_slot - first // BLOCK_M - i_group) * BLOCK_M
    multiplies = has_matrix & (row < last)

    in_m = tl.arange(0, BLOCK_M) < last - row
    in_n = tl.arange(0, BLOCK_N) < N - i_n * BLOCK_N
    a += row.to(tl.int64) * a_pitch.row
    b += i_group.to(tl.int64) * stride_bg + (i_n * BLOCK_N).to(tl.int64) * b_pitch.column
    depth = tl.where(multiplies, K, 0)
    b_c = _product(a, b, in_m, in_n, depth, a_pitch, b_pitch, BLOCK_K)
    c += row.to(tl.int64) * c_pitch.row
    store_tile(c, b_c, i_n * BLOCK_N, in_m, N, Epilogue(None, None, c_pitch, None), "none")


@triton.jit
def grouped_weights_kernel(
    a,
    dout,
    db,
    offsets,
    total,
    N,
    K,
    a_pitch,
    dout_pitch,
    stride_bg,
    b_pitch,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    FAR: tl.constexpr,
):
    """One tile, BLOCK_M of K by BLOCK_N, of ``a.T @ dout`` over the rows of one group, BLOCK_K of
    them at a time; zeros for an empty group. FAR: see portable/kernel.py."""
    if FAR:
        a_pitch = wide_pitch(a_pitch)
        dout_pitch = wide_pitch(dout_pitch)
        b_pitch = wide_pitch(b_pitch)
    n_tiles_k, n_tiles_n = tl.cdiv(K, BLOCK_M), tl.cdiv(N, BLOCK_N)
    tiles = n_tiles_k * n_tiles_n
    i_group = tl.program_id(0) // tiles
    i_k, i_n = tile_of_program(tl.program_id(0) % tiles, n_tiles_k, n_tiles_n, GROUP_M)
    first = offset_of(offsets, i_group, total)
    rows = tl.maximum(offset_of(offsets, i_group + 1, total) - first, 0)

    in_k = tl.arange(0, BLOCK_M) < K - i_k * BLOCK_M
    in_n = tl.arange(0, BLOCK_N) < N - i_n * BLOCK_N
    a += first.to(tl.int64) * a_pitch.row + (i_k * BLOCK_M).to(tl.int64) * a_pitch.column
    dout += first.to(tl.int64) * dout_pitch.row + (i_n * BLOCK_N).to(tl.int64) * dout_pitch.column
    transposed = Pitch(a_pitch.column, a_pitch.row)
    b_c = _product(a, dout, in_k, in_n, rows, transposed, dout_pitch, BLOCK_K)
    db += i_group.to(tl.int64) * stride_bg + (i_k * BLOCK_M).to(tl.int64) * b_pitch.row
    store_tile(db, b_c, i_n * BLOCK_N, in_k, N, Epilogue(None, None, b_pitch, None), "none")


def launch(
    a: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor, out: torch.Tensor
) -> torch.Tensor:
    """``out[rows of g] = a[rows of g] @ b[g]`` for checked arguments."""
    total, K = a.shape
    groups, _, N = b.shape
    with targets.on_device_of(a, "a"):
        config = choose_grouped(targets.current(), total, groups, N, a.dtype)
        n_slots = total // config.block_m + groups + 1
        noted(grouped_matmul_kernel, (n_slots * triton.cdiv(N, config.block_n),))(
            a,
            b,
            out,
            offsets,
            groups,
            total,
            n_slots,
            N,
            K,
            Pitch(*a.stride()),
            b.stride(0),
            Pitch(*b.stride()[1:]),
            Pitch(*out.stride()),
            STEPS=groups.bit_length(),
            FAR=far(config, a.stride(), b.stride()[1:], out.stride()),
            **config.constants(),
        )
    return out


def launch_weights(
    a: torch.Tensor, dout: torch.Tensor, offsets: torch.Tensor, out: torch.Tensor
) -> torch.Tensor:
    """``out[g] = a[rows of g].T @ dout[rows of g]`` for checked arguments."""
    total, K = a.shape
    groups, _, N = out.shape
    with targets.on_device_of(a, "a"):
        config = choose_grouped(targets.current(), groups * K, groups, N, a.dtype)
        tiles = triton.cdiv(K, config.block_m) * triton.cdiv(N, config.block_n)
        noted(grouped_weights_kernel, (groups * tiles,))(
            a,
            dout,
            out,
            offsets,
            total,
            N,
            K,
            Pitch(*a.stride()),
            Pitch(*dout.stride()),
            out.stride(0),
            Pitch(*out.stride()[1:]),
            FAR=far(config, a.stride()[::-1], dout.stride(), out.stride()[1:]),
            **config.constants(),
        )
    return out
