"""What may be asked of a score between its product and its weight, in every kernel alike.

Each field of ``Scores`` is None where nothing is asked of it; the kernels are then the machine
code they are without.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl
from triton import knobs
from triton.language.extra import libdevice

from kernels.device.products import apart, loaded_as_fp32


class ScoreOptions(NamedTuple):
    """What a call asks of its scores, as one argument of a kernel; None where it asks nothing.

    ``factor`` is what the product of a query and a key is multiplied by first, None where scores
    stay products and the kernel scales them where it is cheapest. The rest in the order of its
    use: ``softcap`` s becomes softcap * tanh(s / softcap). ``slopes`` are those of ALiBi. ``sinks``
    are scores without a value. Weights whose signed 32 bits, drawn from ``seed``, are less than
    ``drop_below`` are dropped, the others are multiplied by ``keep_scale``. The ``bias`` is added
    or, of uint8, hides where it is 0. ``end`` as ``Layout`` has it.
    """

    factor: Any
    softcap: Any
    slopes: Any
    slope_strides: Any
    sinks: Any
    seed: Any
    drop_below: Any
    keep_scale: Any
    bias: Any
    bias_strides: Any
    end: Any = None


class OfHead(NamedTuple):
    """What ``of_head`` finds for a program of one head; 0 where nothing is asked, since Triton 3.6
    returns no tuple that holds None."""

    slope: Any
    seed: Any
    bias: Any
    blocks: Any


class Scores(NamedTuple):
    """What one program, of one head, does with its scores.

    ``asked`` and ``blocks`` are those of the call, ``own`` is the head's: its slope, the seed
    itself, pointers to its bias (rows, columns) and to how many blocks are seen, and which.
    ``diagonal`` is the key that lies under query 0, bottom-right. The gradient of the bias goes to
    ``dbias``, contiguous, or None. ``head`` is its number in the batch.
    """

    asked: Any
    blocks: Any
    own: Any
    diagonal: Any
    rows: Any
    columns: Any
    dbias: Any
    head: Any


@triton.jit
def slope_of(asked, i_b, i_h):
    strides = asked.slope_strides
    return tl.load(asked.slopes + i_b * strides.batch + i_h * strides.head)


@triton.jit
def of_head(asked, blocks, i_b, i_h, i_own):
    """Of head ``i_h`` of entry ``i_b``, for a program whose rows, or columns, begin with
    ``i_own``."""
    slope, seed, bias, listed = 0, 0, 0, 0
    if asked.slopes is not None:
        slope = slope_of(asked, i_b, i_h)
    if asked.seed is not None:
        seed = tl.load(asked.seed)
    if asked.bias is not None:
        by = asked.bias_strides
        bias = asked.bias + i_b.to(tl.int64) * by.batch + tl.cast(i_h, tl.int64) * by.head
    if blocks.listed is not None:
        by = blocks.strides
        i_list = i_b.to(tl.int64) * by.batch + tl.cast(i_h, tl.int64) * by.head
        listed = blocks.listed + i_list + i_own // blocks.span_own * by.row
    return OfHead(slope, seed, bias, listed)


# The largest number of fp32.
LARGEST = tl.constexpr(3.4028234663852886e38)
# Up to here half a unit in a log-sum-exp's last place is 2^-13 of a weight, half of the least that
# fp16 rounds it by. Far above what scores of trained models are and below what masks are made of.
FAR_FROM = tl.constexpr(4096.0)


@triton.constexpr_function
def is_far(bias) -> bool:
    """Whether a ``bias`` of this type, or None, may take scores far from 0. As exponents of 2 those
    are rounded by more than a weight bears, and the least of fp32, of which masks are made, is none
    at all."""
    return bias is not None and bias.element_ty != tl.uint8


@triton.jit
def finite(b_max, HIDDEN: tl.constexpr):
    """A maximum that exponents are counted from, as a number. A score of +inf then has an infinite
    weight and its row an infinite sum, or NaN beside a NaN; and where keys may be HIDDEN a row that
    has seen none yet does not subtract -inf from -inf."""
    b_max = tl.minimum(b_max, LARGEST)
    return tl.where(b_max == float("-inf"), -LARGEST, b_max) if HIDDEN else b_max


@triton.jit
def modified(b_s, scores, i_row, o_r, i_col, o_c, PRECISE: tl.constexpr):
    """Scores from products, and what the first is differentiated by the second, without factor.

    ``o_r`` counts queries from ``i_row`` on and ``o_c`` keys from ``i_col`` on; they broadcast to
    the tile, whichever of its axes is which. PRECISE asks for the last places of fp32.
    """
    b_slope = 1.0
    if scores.asked.softcap is not None:
        # Rounded to fp32 the quotient moves all scores alike, which a sum over rows keeps.
        WIDE: tl.constexpr = tl.float64 if b_s.dtype == tl.float64 else tl.float32
        b_ratio = tl.cast(scores.asked.factor, WIDE) / tl.cast(scores.asked.softcap, WIDE)
        b_tanh = tanh(b_s.to(WIDE), b_ratio, PRECISE)
        b_s = b_tanh * scores.asked.softcap
        b_slope = 1.0 - b_tanh * b_tanh
    elif scores.asked.factor is not None:
        b_s *= scores.asked.factor
    if scores.asked.slopes is not None:
        b_away = tl.abs(o_r - o_c + (i_row - i_col + scores.diagonal))
        b_s -= scores.own.slope * b_away.to(tl.float32)
    if scores.asked.bias is not None:
        # The 64-bit part of the address is one scalar.
        strides = scores.asked.bias_strides
        i_bias = tl.cast(i_row, tl.int64) * strides.row
        i_bias += tl.cast(i_col, tl.int64) * strides.column
        b_bias = tl.load(
            scores.own.bias + i_bias + (o_r * strides.row + o_c * strides.column),
            mask=(o_r < scores.rows - i_row) & (o_c < scores.columns - i_col),
            other=0,
        )
        HIDES: tl.constexpr = b_bias.dtype == tl.uint8
        if PRECISE and b_bias.dtype != tl.float32:
            b_bias = loaded_as_fp32(b_bias)
        if HIDES:
            b_s = tl.where(b_bias != 0, b_s, float("-inf"))
        else:
            b_s += b_bias.to(tl.float32)
    return b_s, b_slope


@triton.jit
def store_bias_gradient(b_ds, scores, own, i_row, o_r, i_col, o_c):
    """What ``modified`` gives is differentiated by the bias as by itself; of rows that are ``own``,
    unless that is None."""
    if scores.dbias is not None:
        inside = (o_r < scores.rows - i_row) & (o_c < scores.columns - i_col)
        if own is not None:
            inside = inside & own
        tl.store(
            scores.dbias + tl.cast(i_row, tl.int64) * scores.columns + i_col
            + (o_r * scores.columns + o_c),
            b_ds.to(scores.dbias.dtype.element_ty),
            mask=inside,
        )  # fmt: skip


@triton.jit
def place(scores, i):
    """Where step ``i`` of a walk lies: there, or in the block that is listed for it."""
    if scores.blocks.listed is not None:
        span = scores.blocks.span
        return tl.load(scores.own.blocks + 1 + i // span) * span + i % span
    else:
        return i


@triton.jit
def kept(
    scores, i_row, i_col, ROWS: tl.constexpr, COLUMNS: tl.constexpr, SUMS: tl.constexpr = tl.float32
):
    """(ROWS, COLUMNS): which weights dropout keeps, of queries from ``i_row`` and keys from
    ``i_col`` on, both multiples of 16, as ROWS and COLUMNS are. A function of seed, head, query and
    key alone, so that passes and tiles of any size agree.

    One Philox 4x32 with 7 rounds serves four weights, those of queries and keys that differ in the
    bit of 8 alone: the words of its counter are key and query without that bit, head and 0, and the
    first two of its result serve the lower query. So far apart because a thread holds such four of
    mma's and wgmma's results, whichever axis is the queries': no word crosses threads. SUMS is what
    products of the weights are added up in.
    """
    o_r = tl.arange(0, ROWS // 2)
    o_c = tl.arange(0, COLUMNS // 2)
    o_r = (i_row + o_r // 8 * 16 + o_r % 8)[:, None]
    o_c = (i_col + o_c // 8 * 16 + o_c % 8)[None, :]
    w_0, w_1, w_2, w_3 = philox(scores.own.seed, o_r, o_c, scores.head)
    below = scores.asked.drop_below
    b_low = tl.join(w_0 >= below, w_1 >= below)
    b_high = tl.join(w_2 >= below, w_3 >= below)
    # [query // 16, query % 8, key // 16, key % 8, bit 3 of key, bit 3 of query]
    b_keep = tl.reshape(tl.join(b_low, b_high), [ROWS // 16, 8, COLUMNS // 16, 8, 2, 2])
    b_keep = tl.reshape(tl.permute(b_keep, [0, 5, 1, 2, 4, 3]), [ROWS, COLUMNS])
    return apart(b_keep.to(tl.int32)) != 0 if tl.float64 == SUMS else b_keep


@triton.jit
def philox(seed, c_0, c_1, c_2):
    """Four words of Philox 4x32 with 7 rounds, as signed ones: counter (c_0, c_1, c_2, 0).

    Products of 64 bits are one instruction, which high and low halves by themselves are not.
    """
    seed = seed.to(tl.uint64, bitcast=True)
    k_0 = seed.to(tl.uint32)
    k_1 = (seed >> 32).to(tl.uint32)
    c_0 = c_0.to(tl.uint32)
    c_1 = c_1.to(tl.uint32)
    c_2 = c_2.to(tl.uint32)
    c_3 = c_2 * 0
    for _ in tl.static_range(7):
        first = c_0.to(tl.uint64) * 0xD2511F53
        second = c_2.to(tl.uint64) * 0xCD9E8D57
        c_0 = (second >> 32).to(tl.uint32) ^ c_1 ^ k_0
        c_1 = second.to(tl.uint32)
        c_2 = (first >> 32).to(tl.uint32) ^ c_3 ^ k_1
        c_3 = first.to(tl.uint32)
        k_0 = tl.add(k_0, 0x9E3779B9, sanitize_overflow=False)
        k_1 = tl.add(k_1, 0xBB67AE85, sanitize_overflow=False)
    return (
        c_0.to(tl.int32, bitcast=True),
        c_1.to(tl.int32, bitcast=True),
        c_2.to(tl.int32, bitcast=True),
        c_3.to(tl.int32, bitcast=True),
    )


@triton.jit
def dropped(b_values, b_keep, scores, ROUNDED: tl.constexpr = False):
    """What is left of weights, or of their gradients.

    ROUNDED, where a difference of it has to vanish, does not leave it to a compiler whether the
    product is rounded before another number is subtracted: an FMA with 0 becomes part of no other.
    In fp64 that rounding is beyond every bar."""
    b_left = tl.where(b_keep, b_values, 0.0)
    if ROUNDED and b_left.dtype == tl.float32:
        return tl.fma(b_left, scores.asked.keep_scale, 0.0)
    else:
        return b_left * scores.asked.keep_scale


@triton.jit
def left_of(
    b_values, scores, i_row, i_col, ROUNDED: tl.constexpr = False, SUMS: tl.constexpr = tl.float32
):
    """Values as they are without dropout, else ``dropped`` where ``kept`` has none."""
    if scores.asked.seed is not None:
        b_keep = kept(scores, i_row, i_col, b_values.shape[0], b_values.shape[1], SUMS)
        b_values = dropped(b_values, b_keep, scores, ROUNDED)
    return b_values


@triton.jit
def marked(b_p, b_keep):
    """Weights, which have no sign, with one that says which dropout keeps: a register less a weight
    than both of them. By bits, for NaN have a sign, too: those it keeps are not negative."""
    b_bits = b_p.to(tl.int32, bitcast=True)
    return tl.where(b_keep, b_bits, b_bits | -0x80000000).to(tl.float32, bitcast=True)


@triton.constexpr_function
def interpreted() -> bool:
    """Whether Triton interprets, which knows no function of the vendors' libraries."""
    return bool(knobs.runtime.interpret)


@triton.jit
def tanh(b_x, ratio, PRECISE: tl.constexpr):
    """Of b_x * ratio in fp32. PRECISE to 2 units in the last place, else to 1e-6 of 1; of fp64 to
    1e-12 of it."""
    WIDE: tl.constexpr = b_x.dtype == tl.float64
    if PRECISE or WIDE:
        b_x *= ratio
        b_far = b_x if WIDE else tl.abs(b_x)
        b_far = 1.0 - 2.0 / (tl.exp(b_far + b_far) + 1.0)
    else:
        # Powers of 2, and a quotient without the steps that its last place takes: two instructions
        # where "/" takes four on NVIDIA and ten on AMD. Of 0 it is 0.
        b_sum = tl.exp2(b_x * (ratio * 2.8853900817779268)) + 1.0
        b_far = 1.0 - (2.0 / b_sum if interpreted() else libdevice.fast_dividef(2.0, b_sum))
    # Near 0 the difference above cancels.
    if WIDE:
        # The first terms of the series.
        b_z = b_x * b_x
        b_near = b_x + b_x * b_z * (b_z * 0.13333333333333333 - 0.3333333333333333)
        b_far = tl.where(tl.abs(b_x) < 0.001, b_near, b_far)
    elif PRECISE:
        # x + x^3 P(x^2), P fitted to the relative error.
        b_z = b_x * b_x
        b_p = -0.005704978480935097 * b_z + 0.020639078691601753
        b_p = (b_p * b_z - 0.05373971164226532) * b_z + 0.13331441581249237
        b_near = b_x + b_x * b_z * (b_p * b_z - 0.3333328068256378)
        b_far = tl.where(b_x < 0.0, -b_far, b_far)
        b_far = tl.where(tl.abs(b_x) < 0.625, b_near, b_far)
    return b_far
