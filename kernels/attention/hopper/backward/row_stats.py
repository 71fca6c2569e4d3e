"""What Hopper's backward pass needs of every row before it starts, and its sums afterwards.

The gradient of a query is a sum over blocks of keys that many programs add to. Floating-point sums
depend on their order, integers' do not: a row is counted in units of 2^-e, int32, where 2^31 units
are more than its gradient can reach. With weights p that sum to 1 at most,

    |dq| <= sum_j p_j |dout . v_j - delta| |k_j| <= (|dout| max_j |v_j| + |delta|) max |k|,

with Euclidean norms of dout and v and the largest element of k. On random numbers that is 2^13
times what dq is, which leaves 18 bits of it: fp16 has 11, bf16 8. A key or value 2^n times the
others' size takes n bits of those 18 from all queries of its head.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.attention.common.numerics.constants import TO_BASE_2
from kernels.attention.common.numerics.heavy_rows import is_marked, spoilt
from kernels.attention.hopper.packed.places import PLACE, place

# How many units 1 is in a row, a power of two, from the norm of its dout ($1), its delta ($2), the
# largest norm of v ($3) and element of k ($4). Two kernels have to find the same number to the last
# bit, so it is in the machine's words. Integers know no NaN: where one may arise the number is NaN,
# and with it the whole gradient of the row, even if only a key it does not see is not finite.
UNITS = tl.constexpr("""{
    .reg .f32 most, bits, k;
    .reg .pred finite;
    abs.f32 most, $2;
    fma.rn.f32 most, $1, $3, most;
    lg2.approx.ftz.f32 bits, most;
    lg2.approx.ftz.f32 k, $4;
    add.rn.f32 bits, bits, k;
    sub.rn.f32 bits, 0f41F00000, bits;
    cvt.rmi.f32.f32 bits, bits;
    max.f32 bits, bits, 0fC2FC0000;
    min.f32 bits, bits, 0f42FC0000;
    ex2.approx.ftz.f32 bits, bits;
    setp.lt.f32 finite, most, 0f7F800000;
    setp.lt.and.f32 finite, $4, 0f7F800000, finite;
    selp.f32 $0, bits, 0f7FC00000, finite;
}""")


@triton.jit
def _magnitudes(x):
    """inf for NaN too, which a maximum would pass over."""
    x = tl.abs(x.to(tl.float32))
    return tl.where(x < float("inf"), x, float("inf"))


@triton.jit
def _power_of_two(x):
    """1 over a power of two, and that power: x at most, from 2^-126 to 2^126."""
    bits = x.to(tl.int32, bitcast=True) & 0x7F800000
    bits = tl.minimum(tl.maximum(bits, 0x00800000), 0x7E800000)
    return (0x7F000000 - bits).to(tl.float32, bitcast=True), bits.to(tl.float32, bitcast=True)


@triton.jit
def _norms(x):
    """Euclidean norm of every row, without overflow; inf where an element is not finite."""
    x = _magnitudes(x)
    largest = tl.max(x, 1)
    scale, back = _power_of_two(largest)
    x = x * scale[:, None]
    return tl.where(largest < float("inf"), tl.sqrt(tl.sum(x * x, 1)) * back, largest)


@triton.jit(do_not_specialize=["sequences"])
def attention_backward_hopper_prepare(
    k,
    v,
    out,
    dout,
    lse,
    dlse,
    bounds,
    rows,
    dq,
    places,
    sequences,
    strides,
    dout_strides,
    batch,
    heads,
    kv_heads,
    seqlen_q,
    seqlen_k,
    HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    MARKED: tl.constexpr,
):
    """rows, (3, batch, heads, padded seqlen_q): lse in base 2, delta - dlse, norm of dout.

    A row without a key, and one past the end, gets +inf as lse: its weights are 0; one whose lse
    is +inf gets NaN. The sums of dq become 0. bounds, (2, batch * kv_heads, blocks of keys):
    largest element of k, norm of v.
    With MARKED delta is 0 of rows that lse marks (common/numerics/heavy_rows.py), of which dlse
    tells all. Where nothing is summed in fixed point, dq and bounds are None and rows has no norms.
    Of ``sequences`` that are packed ``places`` tells where rows, and behind them keys, stand
    (hopper/packed/places.py), and batch is 1; else both are None.
    """
    gdc_launch_dependents()
    n_m = tl.cdiv(seqlen_q, BLOCK_M)
    if places is not None:
        n_m = seqlen_q // BLOCK_M + sequences
    n_rows = n_m * batch * heads
    pid = tl.program_id(0)
    if pid >= n_rows:
        if bounds is not None:
            n_n = tl.cdiv(seqlen_k, BLOCK_N)
            if places is not None:
                n_n = seqlen_k // BLOCK_N + sequences
                places += n_m * PLACE
            i_n = (pid - n_rows) % n_n
            i_bh = (pid - n_rows) // n_n
            i_b = (i_bh // kv_heads).to(tl.int64)
            i_h = (i_bh % kv_heads).to(tl.int64)
            first = i_n * BLOCK_N
            if places is not None:
                begin, seqlen_k = place(places, i_n)
                k += begin.to(tl.int64) * strides.k.row
                v += begin.to(tl.int64) * strides.v.row
                first = 0
            o_n = (first + tl.arange(0, BLOCK_N)).to(tl.int64)[:, None]
            o_d = tl.arange(0, BLOCK_D)[None, :]
            inside = (o_n < seqlen_k) & (o_d < HEAD_DIM)
            p_k = k + i_b * strides.k.batch + i_h * strides.k.head + o_n * strides.k.row + o_d
            p_v = v + i_b * strides.v.batch + i_h * strides.v.head + o_n * strides.v.row + o_d
            b_k = _magnitudes(tl.load(p_k, mask=inside, other=0.0))
            b_v = _norms(tl.load(p_v, mask=inside, other=0.0))
            tl.store(bounds + i_bh * n_n + i_n, tl.max(tl.max(b_k, 1), 0))
            tl.store(bounds + (batch * kv_heads + i_bh) * n_n + i_n, tl.max(b_v, 0))
        return
    i_bh = pid // n_m
    i_h = (i_bh % heads).to(tl.int64)
    i_b = (i_bh // heads).to(tl.int64)
    o_m = pid % n_m * BLOCK_M + tl.arange(0, BLOCK_M)
    o_d = tl.arange(0, BLOCK_D)
    if places is None:
        o_own = o_m
        in_m = o_own < seqlen_q
    else:
        first, count = place(places, pid % n_m)
        out += first.to(tl.int64) * strides.out.row
        dout += first.to(tl.int64) * dout_strides.row
        lse += first
        if dlse is not None:
            dlse += first
        o_own = tl.arange(0, BLOCK_M)
        in_m = o_own < count
    inside = in_m[:, None] & (o_d[None, :] < HEAD_DIM)
    o_s = o_own.to(tl.int64)[:, None]
    p_out = out + i_b * strides.out.batch + i_h * strides.out.head
    p_out = p_out + o_s * strides.out.row + o_d[None, :] * strides.out.column
    p_dout = dout + i_b * dout_strides.batch + i_h * dout_strides.head
    p_dout = p_dout + o_s * dout_strides.row + o_d[None, :]
    b_out = tl.load(p_out, mask=inside, other=0.0).to(tl.float32)
    b_dout = tl.load(p_dout, mask=inside, other=0.0).to(tl.float32)
    b_delta = tl.sum(b_out * b_dout, 1)
    o_bh = i_bh.to(tl.int64) * seqlen_q
    b_lse = tl.load(lse + o_bh + o_own, mask=in_m, other=float("-inf"))
    if MARKED:
        b_delta = tl.where(is_marked(b_lse), 0.0, b_delta)
    if dlse is not None:
        b_delta -= tl.load(dlse + o_bh + o_own, mask=in_m, other=0.0)
    b_lse = tl.where(b_lse == float("-inf"), float("inf"), spoilt(b_lse) * TO_BASE_2)
    o_row = i_bh.to(tl.int64) * n_m * BLOCK_M + o_m
    all_rows = n_rows.to(tl.int64) * BLOCK_M
    tl.store(rows + o_row, b_lse)
    tl.store(rows + all_rows + o_row, b_delta)
    if dq is not None:
        tl.store(rows + 2 * all_rows + o_row, _norms(b_dout))
        nothing = tl.zeros([BLOCK_M, BLOCK_D], dq.dtype.element_ty)
        tl.store(dq + o_row[:, None] * BLOCK_D + o_d[None, :], nothing)


@triton.jit(do_not_specialize=["sequences"])
def attention_backward_hopper_convert(
    sums,
    rows,
    bounds,
    dq,
    places,
    sequences,
    heads,
    kv_heads,
    seqlen_q,
    seqlen_k,
    scale,
    HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """dq, contiguous (batch, seqlen_q, heads, head_dim), from its sums in units.

    Of ``sequences`` that are packed ``places`` tells where rows stand, else both are None.
    """
    gdc_wait()
    n_m = tl.cdiv(seqlen_q, BLOCK_M)
    if places is not None:
        n_m = seqlen_q // BLOCK_M + sequences
    i_bh = tl.program_id(0) // n_m
    o_m = tl.program_id(0) % n_m * BLOCK_M + tl.arange(0, BLOCK_M)
    o_d = tl.arange(0, BLOCK_D)
    if places is None:
        o_own = o_m
        in_m = o_own < seqlen_q
    else:
        # Whose rows they are is asked while their sums come.
        p_sums = sums + (i_bh.to(tl.int64) * n_m * BLOCK_M + o_m)[:, None] * BLOCK_D + o_d[None, :]
        b_dq = tl.load(p_sums)
        i_m = tl.program_id(0) % n_m
        first, count = place(places, i_m)
        o_own = first.to(tl.int64) + tl.arange(0, BLOCK_M)
        in_m = tl.arange(0, BLOCK_M) < count
    inside = in_m[:, None] & (o_d[None, :] < HEAD_DIM)
    o_row = i_bh.to(tl.int64) * n_m * BLOCK_M + o_m
    all_rows = tl.num_programs(0).to(tl.int64) * BLOCK_M
    n_n = tl.cdiv(seqlen_k, BLOCK_N)
    n_all = n_n
    first_bound = 0
    if places is not None:
        n_all = seqlen_k // BLOCK_N + sequences
        first_bound = tl.load(places + i_m * PLACE + 2)
        n_n = tl.load(places + i_m * PLACE + 3)
    i_kv = i_bh // heads * kv_heads + i_bh % heads // (heads // kv_heads)
    n_kv = tl.num_programs(0) // n_m // heads * kv_heads
    o_b = tl.arange(0, BLOCKS)
    p_bounds = bounds + i_kv * n_all + first_bound + o_b
    k_most = tl.max(tl.load(p_bounds, mask=o_b < n_n, other=0.0), 0)
    v_most = tl.max(tl.load(p_bounds + n_kv * n_all, mask=o_b < n_n, other=0.0), 0)
    units = tl.inline_asm_elementwise(
        UNITS,
        "=r,r,r,r,r",
        [
            tl.load(rows + 2 * all_rows + o_row),
            tl.load(rows + all_rows + o_row),
            v_most,
            k_most,
        ],
        dtype=tl.float32,
        is_pure=True,
        pack=1,
    )
    if places is None:
        p_sums = sums + o_row[:, None] * BLOCK_D + o_d[None, :]
        b_dq = tl.load(p_sums, mask=in_m[:, None], other=0)
    # Columns are stored in another order, which the kernel tells.
    b_dq = tl.reshape(b_dq, (BLOCK_M, BLOCK_D // 32, 2, 2, 2, 4))
    b_dq = tl.reshape(tl.permute(b_dq, (0, 1, 4, 3, 2, 5)), (BLOCK_M, BLOCK_D))
    b_dq = b_dq.to(tl.float32) * (scale / units)[:, None]
    to = ((i_bh // heads).to(tl.int64) * seqlen_q + o_own) * heads + i_bh % heads
    tl.store(dq + to[:, None] * HEAD_DIM + o_d[None, :], b_dq.to(dq.dtype.element_ty), mask=inside)
