"""Maxima and sums of a program's rows in the forward pass: how they begin, and what they end in."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.attention.common.numerics.constants import TO_BASE_2, TO_BASE_E
from kernels.attention.common.numerics.heavy_rows import HEAVY
from kernels.attention.common.scores import FAR_FROM


@triton.jit
def begun(asked, i_h, ROWS: tl.constexpr, NATURAL: tl.constexpr, FAR: tl.constexpr):
    """Maximum and sum of rows that have seen no key, and the sink, 0 without."""
    b_max = tl.full([ROWS], float("-inf"), dtype=tl.float32)
    # In fp32 a rounding a tile is as much as the log-sum-exp may lose.
    b_sum = tl.zeros([ROWS], dtype=tl.float64 if NATURAL else tl.float32)
    b_sink = 0.0
    if asked.sinks is not None:
        # One more score, without a value.
        b_sink = tl.load(asked.sinks + i_h) * (1.0 if NATURAL or FAR else TO_BASE_2)
        b_max = tl.zeros([ROWS], dtype=tl.float32) + b_sink
        b_sum += tl.where(b_sink == float("-inf"), 0.0, 1.0)
    return b_max, b_sum, b_sink


@triton.jit
def finished(b_out, b_max, b_sum, b_sink, asked, i_h, NATURAL: tl.constexpr, FAR: tl.constexpr):
    """Output and log-sum-exp of rows."""
    # A fully masked row has sum 0: its output is 0 and its log-sum-exp -inf.
    b_divisor = tl.where(b_sum == 0.0, 1.0, b_sum)
    if asked.seed is not None:
        # Weights of a row with a score of +inf are NaN, also where dropout left finite numbers.
        b_divisor = tl.where(b_sum == float("inf"), float("nan"), b_divisor)
    if NATURAL and b_out.dtype == tl.float32:
        # "/" of fp32 errs by up to 2 units in the last place.
        b_divisor = b_divisor.to(tl.float32)
        b_out = tl.div_rn(b_out, b_divisor[:, None].broadcast_to(b_out.shape))
    else:
        b_out = b_out * (1.0 / b_divisor)[:, None]
    if NATURAL:  # a logarithm rounded to fp32 would err as much as the result's own rounding
        b_lse = (b_max.to(tl.float64) + tl.log(b_sum)).to(tl.float32)
    elif FAR:
        b_lse = b_max + tl.log2(b_sum) * TO_BASE_E
    else:
        b_lse = (b_max + tl.log2(b_sum)) * TO_BASE_E
    b_lse = tl.where(b_sum == 0.0, float("-inf"), b_lse)
    if asked.sinks is not None and not NATURAL:
        # Where no score adds to it the sink itself, which log2(e) and back may round.
        is_alone = (b_max == b_sink) & (b_sum == 1.0)
        b_lse = tl.where(is_alone, tl.load(asked.sinks + i_h), b_lse)
    return b_out, b_lse


@triton.jit
def is_heavy(b_max, b_sum, b_sink, b_lse, asked, FAR: tl.constexpr):
    """Which rows have one weight that leaves the others little."""
    b_heavy = b_sum < 1.0 / HEAVY
    if asked.sinks is not None:
        # A heavy sink leaves the others nothing: it has no value, so its dp is exactly 0.
        b_others = b_sum - tl.exp2((b_sink - b_max) * (TO_BASE_2 if FAR else 1.0))
        b_heavy = b_heavy & (b_others > b_sum * HEAVY)
    if FAR:  # where backward/far_rows.py serves; no weights follow from the log-sum-exp there
        b_heavy = b_heavy & (tl.abs(b_lse) <= FAR_FROM)
    return b_heavy
