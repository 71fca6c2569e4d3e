"""What Hopper's fp8 attention needs first: values with their keys side by side, and its factors."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.attention.common.addressing import Strides
from kernels.attention.common.numerics.constants import LOG2_E
from kernels.attention.common.numerics.fp8_scales import Scales, no_zero, scale_of
from kernels.attention.common.packed.sequences import Begins, begins, bounds
from kernels.attention.hopper.packed.tiles import lengths
from kernels.runtime.addressing import LIMIT
from kernels.runtime.launch import noted

KEYS = 128  # that a program turns around; the kernel of the products reads whole groups of 16
ROUNDED = 64  # to which keys are rounded up, so that whole vectors are stored
MOST = 65_535  # entries of the batch a launch: programs along a grid's second axis
SEARCHED_AT_ONCE = tl.constexpr(256)  # packed sequences


@triton.jit
def _in_room(cu, batch, i_n, ROOM: tl.constexpr, BLOCK_N: tl.constexpr):
    """Of the columns of block ``i_n``: the sequence in whose room they are, its first row, which
    of its keys the first column has, and how many keys are left there; and whether there is one."""
    o = tl.arange(0, SEARCHED_AT_ONCE)
    b_found = tl.full([SEARCHED_AT_ONCE], -1, tl.int32)
    room = i_n // (ROOM // BLOCK_N)
    for i in range(0, batch, SEARCHED_AT_ONCE):
        in_b = i + o < batch
        b_first = tl.load(begins(cu) + i + o, mask=in_b, other=0) // ROOM + i + o
        b_rows = lengths(cu, i, o, in_b)
        b_rooms = tl.maximum((b_rows + ROOM - 1) // ROOM, 1)
        # Where what begins next begins before, there is no sequence.
        owns = in_b & (b_rows >= 0) & (b_first <= room) & (room < b_first + b_rooms)
        b_found = tl.maximum(b_found, tl.where(owns, i + o, -1))
    found = tl.max(b_found)
    i_b = tl.maximum(found, 0)
    o_row, rows = bounds(cu, i_b)
    i_first = i_n * BLOCK_N - (o_row // ROOM + i_b) * ROOM
    return i_b, o_row, i_first, rows - i_first, found >= 0


@triton.jit
def attention_forward_fp8_hopper_prepare(
    v,
    to,
    scales,
    factors,
    scale_strides,
    strides,
    kv_heads,
    heads_per_kv,
    seqlen_k,
    words_to,
    scale_log,
    WORDS: tl.constexpr,
    BLOCK_W: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BY_SEQUENCE: tl.constexpr,
    cu=None,
    batch=None,
    ROOM: tl.constexpr = 0,
):
    """v (batch, keys, kv heads, 4 WORDS) to (batch, kv heads, 4 WORDS, 4 words_to), four values a
    word of 32 bits, zeros past the last key. Of 16 keys, those with the numbers 2 t, 2 t + 1,
    2 t + 8 and 2 t + 9 are next to each other: one thread has their scores.

    factors: (1, 2, heads) fp32 or, BY_SEQUENCE, (batch, 2, heads), by which scores are multiplied,
    to powers of 2, and the output. The first of a head whose scales are below 0 is NaN.

    With ``cu``, which tells where ``batch`` packed sequences begin (``Begins`` in
    common/packed/sequences.py), v is (1, tokens, kv heads, 4 WORDS) and ``seqlen_k`` not used.
    Sequence i, which begins with row r, has its room from column (r // ROOM + i) * ROOM on: as many
    whole ROOM columns as its keys fill, one ROOM at least. Behind its keys there are zeros, for
    what else is there may be NaN.
    """
    # Heads side by side, as they are in memory.
    i_h = tl.program_id(0) % kv_heads
    i_n = tl.program_id(0) // kv_heads
    if cu is None:
        i_b = tl.program_id(1)
        finds = (i_n == 0) & (BY_SEQUENCE | (i_b == 0))
    else:
        i_b, o_row, i_first, n_left, exists = _in_room(cu, batch, i_n, ROOM, BLOCK_N)
        finds = (i_first == 0) & exists if BY_SEQUENCE else i_n == 0
    if finds:
        if BY_SEQUENCE:
            factors += i_b * (2 * kv_heads * heads_per_kv)
        b_scale = scale_log
        b_out = 1.0
        if scales.k is not None:
            b_scale *= scale_of(scales.k, i_b, i_h, scale_strides.k)
        if scales.v is not None:
            b_out *= scale_of(scales.v, i_b, i_h, scale_strides.v)
        for i_q in range(i_h * heads_per_kv, (i_h + 1) * heads_per_kv):
            b_factor = b_scale
            if scales.q is not None:
                b_factor *= scale_of(scales.q, i_b, i_q, scale_strides.q)
            if scales.q is not None or scales.k is not None:
                b_factor = no_zero(b_factor)
                # Below 0 the kernel of the products would take the least score for the largest, and
                # to turn signs there spills: no number, instead of a wrong one.
                b_factor = tl.where(b_factor < 0.0, float("nan"), b_factor)
            tl.store(factors + i_q, b_factor)
            tl.store(factors + kv_heads * heads_per_kv + i_q, b_out)

    if cu is None:
        v += i_b.to(tl.int64) * strides.batch + i_h.to(tl.int64) * strides.head
        v += (i_n * BLOCK_N).to(tl.int64) * strides.row
        to += (i_b * kv_heads + i_h).to(tl.int64) * (4 * WORDS) * words_to + i_n * (BLOCK_N // 4)
    else:
        if not exists:
            return
        v += i_h.to(tl.int64) * strides.head + (o_row + i_first).to(tl.int64) * strides.row
        to += i_h.to(tl.int64) * (4 * WORDS) * words_to + i_n * (BLOCK_N // 4)
    o_w = tl.arange(0, BLOCK_W)
    o_n = tl.arange(0, BLOCK_N // 4)
    in_w = o_w < WORDS
    # Of four keys the first; the others follow it by 1, 8 and 9.
    o_key = o_n // 4 * 16 + o_n % 4 * 2
    if cu is None:
        n_left = seqlen_k - i_n * BLOCK_N
    p_v = v + o_key[:, None] * strides.row + o_w[None, :]
    # [BLOCK_N / 4, BLOCK_W]
    b_0 = tl.load(p_v, mask=(o_key < n_left)[:, None] & in_w[None, :], other=0)
    p_v += strides.row
    b_1 = tl.load(p_v, mask=(o_key + 1 < n_left)[:, None] & in_w[None, :], other=0)
    p_v += 7 * strides.row
    b_8 = tl.load(p_v, mask=(o_key + 8 < n_left)[:, None] & in_w[None, :], other=0)
    p_v += strides.row
    b_9 = tl.load(p_v, mask=(o_key + 9 < n_left)[:, None] & in_w[None, :], other=0)
    # The first bytes of the four are the first word, and so on.
    b_0, b_1, b_2, b_3 = tl.inline_asm_elementwise(
        """{.reg .b32 low, high;
        prmt.b32 low, $4, $5, 0x5140;
        prmt.b32 high, $6, $7, 0x5140;
        prmt.b32 $0, low, high, 0x5410;
        prmt.b32 $1, low, high, 0x7632;
        prmt.b32 low, $4, $5, 0x7362;
        prmt.b32 high, $6, $7, 0x7362;
        prmt.b32 $2, low, high, 0x5410;
        prmt.b32 $3, low, high, 0x7632;}""",
        "=&r,=&r,=&r,=&r,r,r,r,r",
        [b_0, b_1, b_8, b_9],
        dtype=(tl.int32, tl.int32, tl.int32, tl.int32),
        is_pure=True,
        pack=1,
    )
    p_to = to + o_w.to(tl.int64)[:, None] * (4 * words_to) + o_n[None, :]
    mask = in_w[:, None] & (o_n < words_to - i_n * (BLOCK_N // 4))[None, :]
    tl.store(p_to, tl.trans(b_0), mask=mask)
    tl.store(p_to + words_to, tl.trans(b_1), mask=mask)
    tl.store(p_to + 2 * words_to, tl.trans(b_2), mask=mask)
    tl.store(p_to + 3 * words_to, tl.trans(b_3), mask=mask)


def turnable(v: torch.Tensor) -> bool:
    """Whether four values next to each other are one word of 32 bits everywhere, and 32 bits count
    the words of a block of keys."""
    return (
        v.stride(3) == 1
        and v.shape[3] % 4 == 0
        and v.data_ptr() % 16 == 0
        and v.storage_offset() % 4 == 0
        and KEYS * v.stride(1) // 4 < LIMIT
        and all(stride % 4 == 0 for stride in v.stride()[:3])
    )


def columns(keys: int, room: int, batch: int) -> int:
    """How many the rooms of packed sequences have together."""
    return (keys // room + batch) * room


def prepare(
    v: torch.Tensor,
    heads: int,
    scale: float,
    scales: Scales,
    cu: Begins | None = None,
    room: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Values as (batch, kv heads, head dim, keys rounded up), and the factors of ``heads``, of each
    sequence where scales are.

    Of packed sequences, which ``cu`` tells: v is (1, tokens, kv heads, head dim), and so is the
    batch of what is found, in rooms of whole ``room`` columns, a multiple of ``KEYS``."""
    batch, seqlen_k, kv_heads, head_dim = v.shape
    sequences = batch
    words = triton.cdiv(seqlen_k, ROUNDED) * (ROUNDED // 4)
    blocks = triton.cdiv(seqlen_k, KEYS)
    if cu is not None:
        sequences = len(cu if isinstance(cu, torch.Tensor) else cu[0]) - 1
        words = columns(seqlen_k, room, sequences) // 4
        blocks = 4 * words // KEYS
    size = batch * kv_heads * head_dim * words
    by_sequence = scales.by_sequence
    sets = sequences if by_sequence else 1
    # One piece of memory; of integers, which torch fills where it is asked to fill what is new.
    memory = torch.empty(size + sets * 2 * heads, dtype=torch.int32, device=v.device)
    values = memory[:size].view(batch, kv_heads, head_dim, words)
    factors = memory[size:].view(torch.float32).view(sets, 2, heads)
    by_word = v.view(torch.int32)
    for first in range(0, batch, MOST):
        some = slice(first, first + MOST)
        source, to, given, found = by_word, values, scales, factors
        if batch > MOST:
            source, to, given = by_word[some], values[some], scales.of(some)
            found = factors[some] if by_sequence else factors
        grid = (blocks * kv_heads, source.shape[0])
        noted(attention_forward_fp8_hopper_prepare, grid)(
            source,
            to,
            given,
            found,
            given.strides(),
            Strides(*by_word.stride()),
            kv_heads,
            heads // kv_heads,
            seqlen_k,
            words,
            scale * LOG2_E,
            WORDS=head_dim // 4,
            BLOCK_W=max(8, triton.next_power_of_2(head_dim // 4)),
            BLOCK_N=KEYS,
            BY_SEQUENCE=by_sequence,
            cu=cu,
            batch=None if cu is None else sequences,
            ROOM=room,
            num_warps=4,
        )
    return values.view(v.dtype), factors
