"""The fp8 attention forward pass of Hopper GPUs in Gluon: a producer warp, consumer warpgroups.

As hopper/forward/kernel.py, with three differences. fp8 products want both operands along what is
summed, so values come transposed (hopper/fp8/launch.py). The products of a block of keys are added
to the output in fp32: while it adds them itself, the unit keeps 14 bits. And a warpgroup multiplies
or exponentiates, never both: sums, products and scores at once would need more registers than three
warpgroups have, and three that take turns as they come are faster than two that overlap.
docs/kernels/hopper/forward-fp8.md explains the design; portable/fp8/kernel.py is its twin in
tests.

Aggregates read their annotations when they are built, so nothing here postpones them.
"""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from kernels.attention.common.numerics.constants import TO_BASE_E
from kernels.attention.common.numerics.fp8_scales import OFFSET as OFFSETS
from kernels.attention.hopper.copies import Memory, produce
from kernels.attention.hopper.problem import Problem
from kernels.attention.hopper.products import scores
from kernels.attention.hopper.tile_order import SIZES, anew
from kernels.device.hopper_rings import ROWS, new_ring, pass_over, specialise

# Weights are rounded 2^8 times as large.
OFFSET = gl.constexpr(float(OFFSETS[torch.float8_e4m3fn]))


@gluon.jit
def _pack(p):
    """Weights in e4m3, four in a register: of 16 columns those that one thread holds."""
    even, odd = p.reshape([ROWS, p.shape[1] // 16, 2, 4, 2]).permute((0, 1, 3, 2, 4)).split()
    even_low, even_high = even.split()
    odd_low, odd_high = odd.split()
    return gl.inline_asm_elementwise(
        """{.reg .b16 low, high;
        cvt.rn.satfinite.e4m3x2.f32 low, $2, $1;
        cvt.rn.satfinite.e4m3x2.f32 high, $4, $3;
        mov.b32 $0, {low, high};}""",
        "=r,r,r,r,r",
        [even_low, odd_low, even_high, odd_high],
        dtype=gl.uint32,
        is_pure=True,
        pack=1,
    )


@gluon.jit
def _byte(packed, SHIFT: gl.constexpr):
    return ((packed >> SHIFT) & 0xFF).to(gl.uint8).to(gl.float8e4nv, bitcast=True)


@gluon.jit
def _unpack(packed, LAYOUT: gl.constexpr):
    """What ``_pack`` packed as left operand of a product, nothing moved: of the keys that a thread
    holds of 16, 2 t, 2 t + 1, 2 t + 8 and 2 t + 9, the product sums as 4 t to 4 t + 3. The
    transposed values have them there."""
    low = gl.join(_byte(packed, 0), _byte(packed, 8))
    high = gl.join(_byte(packed, 16), _byte(packed, 24))
    p = gl.join(low, high).permute((0, 1, 2, 4, 3))
    return gl.convert_layout(p.reshape([ROWS, packed.shape[1] * 16]), LAYOUT)


@gluon.jit
def _values(p, v_ring, v_at, I_PART: gl.constexpr, PARTS: gl.constexpr, problem):
    """Start p @ v of one block, a part of its columns."""
    COLUMNS: gl.constexpr = problem.HEAD_DIM // PARTS
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLUMNS, 32])
    v = v_ring.memory.index(v_at.stage).reshape([problem.HEAD_DIM, problem.BLOCK_N])
    if PARTS > 1:
        v = v.slice(I_PART * COLUMNS, COLUMNS, 0)
    acc = gl.zeros([ROWS, COLUMNS], gl.float32, LAYOUT)
    b_p = _unpack(p, gl.DotOperandLayout(0, LAYOUT, 4))
    return warpgroup_mma(b_p, v.permute((1, 0)), acc, use_acc=False, is_async=True)


@gluon.jit
def _added(acc, factor, pv):
    return acc * gl.convert_layout(factor, gl.SliceLayout(1, acc.type.layout))[:, None] + pv


@gluon.jit
def _add_values(accs, factor, p, v_ring, v_at, PARTS: gl.constexpr, problem):
    """accs * factor + p @ v, part by part: one is added while the next is multiplied."""
    added = ()
    pending = _values(p, v_ring, v_at, 0, PARTS, problem)
    for i in gl.static_range(PARTS - 1):
        following = _values(p, v_ring, v_at, i + 1, PARTS, problem)
        pv = warpgroup_mma_wait(1, deps=[pending])
        added = added + (_added(accs[i], factor, pv),)  # type: ignore[assignment]  # noqa: RUF005
        pending = following
    pv = warpgroup_mma_wait(0, deps=[pending])
    return added + (_added(accs[PARTS - 1], factor, pv),)  # noqa: RUF005


@gluon.jit
def _mask(s, row, i_block, own, problem):
    """As hopper_forward has it, without rows kept from tile to tile."""
    LAYOUT: gl.constexpr = s.type.layout
    o_n = gl.arange(0, problem.BLOCK_N, gl.SliceLayout(0, LAYOUT))
    last = own.seqlen_k - 1 - i_block * problem.BLOCK_N
    if problem.CAUSAL:
        o_m = anew(gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT)))
        diagonal = row + own.causal_offset - i_block * problem.BLOCK_N
        last = gl.minimum(diagonal + o_m, last)[:, None]
    return gl.where((o_n & ~6)[None, :] <= last - (o_n & 6)[None, :], s, float("-inf"))


@gluon.jit
def _softmax(s, maximum, total, scale_log2):
    """One step of the online softmax: exponentials, maximum and sum, and the old ones' factor."""
    new = gl.maximum(maximum, gl.max(s, 1) * scale_log2)
    factor = gl.exp2(maximum - new)
    p = gl.exp2(s * scale_log2 - (new - OFFSET)[:, None])
    # Of the weights before they are rounded: the log-sum-exp does not see fp8.
    return p, new, total * factor + gl.sum(p, 1), factor


@gluon.jit
def _steps(
    accs, maximum, total, q, scale_log2, k_ring, v_ring, k_at, v_at, first, end, n_blocks, row, own,
    problem, PARTS: gl.constexpr, MASKED: gl.constexpr,
):  # fmt: skip
    """Blocks [first, end) of a tile."""
    for i in range(first, end):
        k_ring.wait(k_at)
        s = scores(q, k_ring, k_at, problem)
        s = warpgroup_mma_wait(0, deps=[s])
        k_ring.release(k_at.stage)
        k_at = k_at.next()
        if MASKED:
            s = _mask(s, row, n_blocks - 1 - i, own, problem)
        b_p, maximum, total, factor = _softmax(s, maximum, total, scale_log2)
        p = _pack(b_p)
        v_ring.wait(v_at)
        accs = _add_values(accs, factor, p, v_ring, v_at, PARTS, problem)
        v_ring.release(v_at.stage)
        v_at = v_at.next()
    return accs, maximum, total, k_at, v_at


@gluon.jit
def _consume(
    out, lse, factors, tiles, memory, problem, PARTS: gl.constexpr, I_CONSUMER: gl.constexpr
):  # fmt: skip
    q_ring = memory.q
    k_ring = memory.k
    v_ring = memory.v
    CONSUMERS: gl.constexpr = problem.CONSUMERS
    COLUMNS: gl.constexpr = problem.HEAD_DIM // PARTS
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, problem.BLOCK_N, 32])
    O_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLUMNS, 32])
    S_ROWS: gl.constexpr = gl.SliceLayout(1, S_LAYOUT)
    q_at = q_ring.first_to_use()
    for _ in gl.static_range(I_CONSUMER):
        q_at = q_at.next()
    k_at = k_ring.first_to_use()
    v_at = v_ring.first_to_use()
    for i_turn in range(problem.turns(tiles)):
        problem = problem.sizes_anew()
        first_row, i_h, own, exists, i_b = problem.tile(i_turn, tiles)
        if exists:
            scale_log2 = gl.load(factors + problem.factors_at(i_h, i_b))
            row = first_row + I_CONSUMER * ROWS
            n_loaded, n_whole = problem.blocks(own, first_row, problem.BLOCK_M)
            n_blocks = n_loaded
            if problem.SKIP:
                n_blocks, n_whole = problem.blocks(own, row, ROWS)
                # Blocks that only the rows of later consumers see.
                k_at, v_at = pass_over(k_ring, v_ring, k_at, v_at, n_loaded - n_blocks)

            q_ring.wait(q_at)
            q = q_ring.memory.index(q_at.stage).reshape([ROWS, problem.HEAD_DIM])
            # Finite, or a row that sees no key of a block would subtract infinities.
            maximum = gl.full([ROWS], -3.0e38, gl.float32, S_ROWS)
            total = gl.zeros([ROWS], gl.float32, S_ROWS)
            accs = ()
            for _ in gl.static_range(PARTS):
                zero = gl.zeros([ROWS, COLUMNS], gl.float32, O_LAYOUT)
                accs = accs + (zero,)  # type: ignore[assignment]  # noqa: RUF005
            # The masked blocks, then those that every row sees in full.
            n_masked = max(1, n_blocks - n_whole)
            accs, maximum, total, k_at, v_at = _steps(
                accs, maximum, total, q, scale_log2, k_ring, v_ring, k_at, v_at,
                0, n_masked, n_blocks, row, own, problem, PARTS, True,
            )  # fmt: skip
            accs, maximum, total, k_at, v_at = _steps(
                accs, maximum, total, q, scale_log2, k_ring, v_ring, k_at, v_at,
                n_masked, n_blocks, n_blocks, row, own, problem, PARTS, False,
            )  # fmt: skip
            q_ring.release(q_at.stage)
            for _ in gl.static_range(CONSUMERS):
                q_at = q_at.next()

            if problem.PACKED:
                # From the list again: kept beside a tile's products they would spill.
                problem = problem.sizes_anew()
                first_row, i_h, own, exists, i_b = problem.tile(anew(i_turn), tiles)
                row = first_row + I_CONSUMER * ROWS
            # A row that saw no key: its output is 0 and its log-sum-exp -inf.
            inverse = 1.0 / gl.where(total == 0.0, 1.0, total)
            inverse *= gl.load(factors + problem.heads + problem.factors_at(i_h, i_b))
            inverse = gl.convert_layout(inverse, gl.SliceLayout(1, O_LAYOUT))
            staging = memory.out.index(I_CONSUMER)
            PARTS_A_BOX: gl.constexpr = out.block_shape[-1] // COLUMNS
            box = staging.reshape([ROWS, out.block_shape[-1]])
            for i in gl.static_range(PARTS):
                if i % PARTS_A_BOX == 0:
                    tma.store_wait(0)
                b_out = (accs[i] * inverse[:, None]).to(out.dtype)
                if PARTS_A_BOX == 1:
                    box.store(b_out)
                else:
                    box.slice(i % PARTS_A_BOX * COLUMNS, COLUMNS, 1).store(b_out)
                if i % PARTS_A_BOX == PARTS_A_BOX - 1:
                    fence_async_shared()
                    column = (i + 1 - PARTS_A_BOX) * COLUMNS
                    tma.async_copy_shared_to_global(out, own.q_box(i_h, row, column), staging)
            # Last, when the sums' registers are free.
            b_lse = (maximum + (gl.log2(total) - OFFSET)) * TO_BASE_E
            b_lse = gl.where(total == 0.0, float("-inf"), b_lse)
            o_m = gl.arange(0, ROWS, S_ROWS)
            p_lse = lse + (problem.first_lse(own, i_h) + row)
            gl.store(p_lse + o_m, b_lse, mask=o_m < own.seqlen_q - row)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=SIZES)
def attention_forward_fp8_hopper(
    q,
    k,
    v,
    out,
    lse,
    factors,
    tiles,
    heads,
    heads_per_kv,
    batch,
    seqlen_q,
    seqlen_k,
    causal_offset,
    heads_together,
    CONSUMERS: gl.constexpr,
    BLOCK_N: gl.constexpr,
    HEAD_DIM: gl.constexpr,
    STAGES: gl.constexpr,
    CAUSAL: gl.constexpr,
    BY_SEQUENCE: gl.constexpr,
    PAIRS: gl.constexpr,
    Q_STAGES: gl.constexpr,
    SKIP: gl.constexpr,
    PARTS: gl.constexpr,
    ROOM: gl.constexpr,
):
    """Row i sees key j when j < seqlen_k and, with CAUSAL, j <= i + causal_offset.

    q, k, out: (batch, heads, seqlen, head_dim) as descriptors of one head's boxes; v: (batch,
    heads, head_dim, seqlen), keys in the order of ``hopper_fp8.prepare``. factors: (1, 2,
    heads) or, BY_SEQUENCE, (batch, 2, heads), what scores are multiplied by (they are powers of 2
    then) and what the output is. ``tiles`` is None, or lists those of packed sequences
    (hopper/packed/tiles.py): q, k and out are then ragged descriptors, ROOM, lse (heads, seqlen_q)
    and sizes as ``Problem`` has them.
    """
    none = gl.to_tensor(0)
    problem = Problem(
        heads, heads_per_kv, batch, seqlen_q, seqlen_k, causal_offset, causal_offset,
        heads_together, none, none, none, none, CONSUMERS, BLOCK_N, HEAD_DIM, 0, False, CAUSAL,
        PAIRS, False, False, False, SKIP, ROOM > 0, False, False, False, False, False, True,
        BY_SEQUENCE, ROOM,
    )  # fmt: skip
    k_ring = new_ring(k, STAGES, CONSUMERS)
    v_ring = new_ring(v, STAGES, CONSUMERS)
    q_ring = new_ring(q, Q_STAGES * CONSUMERS, 1)
    shape: gl.constexpr = [CONSUMERS] + out.block_shape  # noqa: RUF005
    staging = gl.allocate_shared_memory(out.dtype, shape, out.layout)
    memory = Memory(q_ring, k_ring, v_ring, staging)
    fence_async_shared()
    # Constexprs survive only in tuples written in place.
    specialise(
        _consume, (out, lse, factors, tiles, memory, problem, PARTS),
        produce, (q, k, v, tiles, memory, problem), CONSUMERS,
    )  # fmt: skip
