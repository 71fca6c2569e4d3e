"""How matmul kernels walk the tiles of C, and what happens to a tile before it is written."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from kernels.runtime.addressing import wide

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


class Pitch(NamedTuple):
    """Of a matrix: from a row to the next, and from a column."""

    row: Any = None
    column: Any = None


@triton.jit
def wide_pitch(pitch):
    """One whose products with offsets have 64 bits."""
    return Pitch(wide(pitch.row), wide(pitch.column))


class Product(NamedTuple):
    """``out = activation(a @ b + bias) + residual``, for checked arguments."""

    a: torch.Tensor
    b: torch.Tensor
    out: torch.Tensor
    bias: torch.Tensor | None
    activation: str | None
    residual: torch.Tensor | None = None

    @property
    def sizes(self) -> tuple[int, int, int]:
        """M, N and K."""
        return *self.out.shape, self.a.shape[1]


class Epilogue(NamedTuple):
    """What is added to a tile before and after its activation, or None: a bias, and a residual,
    whose rows of this tile ``residual`` begins at; ``pitch`` is that of C."""

    bias: Any
    residual: Any
    pitch: Any
    residual_pitch: Any


@triton.jit
def store_tile(c, b_c, o_first, in_m, N, epilogue, ACTIVATION: tl.constexpr):
    """Write columns ``o_first`` and on of C, whose rows ``c`` begins at, through the epilogue."""
    pitch, pitch_r = epilogue.pitch, epilogue.residual_pitch
    o_m = tl.arange(0, b_c.shape[0])
    o_n = tl.arange(0, b_c.shape[1])
    in_n = o_n < N - o_first
    if epilogue.bias is not None:
        b_bias = tl.load(epilogue.bias + o_first + o_n, mask=in_n, other=0.0)
        b_c += b_bias[None, :].to(tl.float32)
    b_c = apply_activation(b_c, ACTIVATION, c.dtype.element_ty)
    if epilogue.residual is not None:
        p_r = epilogue.residual + o_first.to(tl.int64) * pitch_r.column
        p_r += o_m[:, None] * pitch_r.row + o_n[None, :] * pitch_r.column
        b_r = tl.load(p_r, mask=in_m[:, None] & in_n[None, :], other=0.0)
        b_c += b_r.to(tl.float32)
    p_c = c + o_first.to(tl.int64) * pitch.column
    p_c += o_m[:, None] * pitch.row + o_n[None, :] * pitch.column
    tl.store(p_c, b_c.to(c.dtype.element_ty), mask=in_m[:, None] & in_n[None, :])


@triton.jit
def store_parts(c, b_c, o_first, in_m, N, epilogue, ACTIVATION: tl.constexpr, PARTS: tl.constexpr):
    """``store_tile`` for PARTS column parts in turn, a power of two."""
    if PARTS == 1:
        store_tile(c, b_c, o_first, in_m, N, epilogue, ACTIVATION)
    else:
        HALF: tl.constexpr = b_c.shape[1] // 2
        REST: tl.constexpr = PARTS // 2
        b_0, b_1 = tl.split(tl.trans(tl.reshape(b_c, [b_c.shape[0], 2, HALF]), 0, 2, 1))
        o_1 = o_first + HALF
        store_parts(c, b_0, o_first, in_m, N, epilogue, ACTIVATION, REST)
        store_parts(c, b_1, o_1, in_m, N, epilogue, ACTIVATION, REST)
