"""What the forward pass tells the backward pass of a row of 16 bits: whether one weight is heavy.

The forward pass has it for nothing: what a row sums up to counts in weights of its largest. It is
told in the last bit of the log-sum-exp that is kept for the gradients, an error of at most a unit
in the last place: no memory, and a row's mark is where its log-sum-exp is. The one that is returned
to who asks for it is another, without marks.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

# From which share of a row its largest weight is heavy. There gradients by the rounded output begin
# to err more than the formula's: at a half up to 1.16 times, at 0.4 up to 0.99 (emulated in
# PyTorch over 256 rows of 64, fp16 and bf16). docs/kernels/numerics.md has the reason.
HEAVY = tl.constexpr(0.4)


@triton.jit
def marked(b_lse, b_heavy):
    """The log-sum-exps, their last bits ``b_heavy``; infinite ones and NaN as they are."""
    bits = b_lse.to(tl.int32, bitcast=True)
    bits = (bits & -2) | b_heavy.to(tl.int32)
    return tl.where(tl.abs(b_lse) < float("inf"), bits.to(tl.float32, bitcast=True), b_lse)


@triton.jit
def is_marked(b_lse):
    return (b_lse.to(tl.int32, bitcast=True) & 1) != 0


def all_marked(lse: torch.Tensor) -> torch.Tensor:
    """As ``lse``, of which nothing is known: every row with a mark."""
    bits = (lse.detach().view(torch.int32) | 1).view(torch.float32)
    return torch.where(lse.isfinite(), bits, lse)


@triton.jit
def spoilt(b_lse):
    """NaN for +inf: where a score is +inf all weights of its row are NaN, and the others' exponents
    would make them 0."""
    return tl.where(b_lse == float("inf"), float("nan"), b_lse)
