"""The scales of fp8 attention: where each lies, and how a kernel reads one."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from kernels.attention.common.addressing import HeadStrides

# Scores are multiplied after the mask, whose -inf by 0 would be NaN. This makes zeros of all scores
# that there are, too: none is above 2^27.
NEXT_TO_NOTHING = tl.constexpr(2.0**-100)


# The largest power of two each flavour holds: 448 is the largest e4m3fn, 240 the largest e4m3fnuz.
OFFSET = {torch.float8_e4m3fn: 8, torch.float8_e4m3fnuz: 7}


class ScaleStrides(NamedTuple):
    """Of ``Scales``: from one sequence's to the next, None where sequences share them, and from one
    head's, 0 where one value serves all."""

    q: HeadStrides
    k: HeadStrides
    v: HeadStrides


class Scales(NamedTuple):
    """What q, k and v are multiplied by: fp32, one value, one a head or one a sequence and head, or
    None."""

    q: torch.Tensor | None
    k: torch.Tensor | None
    v: torch.Tensor | None

    @property
    def by_sequence(self) -> bool:
        return any(one is not None and one.dim() == 2 for one in self)

    def of(self, some: slice) -> Scales:
        """Those of some sequences."""
        return Scales(*(x[some] if x is not None and x.dim() == 2 else x for x in self))

    def strides(self) -> ScaleStrides:
        found = (
            HeadStrides(
                one.stride(0) if one is not None and one.dim() == 2 else None,
                0 if one is None or one.numel() == 1 else one.stride(-1),
            )
            for one in self
        )
        return ScaleStrides(*found)


@triton.jit
def scale_of(scale, i_b, i_h, strides):
    """Of head ``i_h`` of sequence ``i_b``; strides as ``Scales`` has them."""
    if strides.batch is not None:
        scale += i_b * strides.batch
    return tl.load(scale + i_h * strides.head)


@triton.jit
def no_zero(scale_log):
    """What scores are multiplied by where scales made it 0, as those of tensors of zeros are."""
    return tl.where(tl.abs(scale_log) < NEXT_TO_NOTHING, NEXT_TO_NOTHING, scale_log)


@triton.jit
def with_sign(b_q, scale_log):
    """e4m3 whose products have the other sign where ``scale_log`` is below 0: the largest that a
    loop finds is then that of the scores."""
    b_bits = b_q.to(tl.uint8, bitcast=True)
    b_turned = b_bits ^ tl.where(scale_log < 0.0, 0x80, 0).to(tl.uint8)
    if b_q.dtype == tl.float8e4b8:
        # This flavour has no negative zero: its bits are NaN.
        b_turned = tl.where((b_bits & 0x7F) == 0, b_bits, b_turned)
    return b_turned.to(b_q.dtype, bitcast=True)
