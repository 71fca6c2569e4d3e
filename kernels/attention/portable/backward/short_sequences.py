"""The end of the backward pass of packed sequences: those of few keys to the last place, and zeros
behind the last sequence, in one launch.

Which pass serves is chosen by the longest sequence, since the host reads no lengths. What rows need
that see a few keys (``FEW_KEYS`` of common/numerics/exactness.py) the shorter ones get here, where
the device knows which they are: all keys that their rows see are one tile, so that a program has
weights, delta and gradients of its rows from the same products, without a workspace, and puts them
over what the pass before left there.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.attention.common.addressing import Layout
from kernels.attention.common.numerics.constants import TO_BASE_2
from kernels.attention.common.numerics.products import head_product
from kernels.attention.common.packed.sequences import bounds
from kernels.attention.common.packed.tail import clear_behind, programs_for
from kernels.attention.common.problem import Given, Problem
from kernels.attention.common.scores import OfHead, Scores, dropped, kept, modified, slope_of
from kernels.device.products import add_product
from kernels.runtime import targets
from kernels.runtime.launch import noted

from .tiles import divided

# Keys of a tile. Causal rows see half of a sequence in the mean, so that it has 48; in a window all
# rows together see as many, and 15 before them where a block of ``kept`` begins.
BLOCK_N, MASKED_BLOCK_N = 32, 64
# Each asks a head of every so many sequences, whether they have few keys.
MOST_PROGRAMS = 512


@triton.jit
def keys_seen_by_row(row, seqlen_k, causal_offset, left_offset, CAUSAL: tl.constexpr):
    """The first key that it sees, and the one behind the last."""
    end = seqlen_k
    if CAUSAL:
        end = tl.minimum(row + causal_offset + 1, seqlen_k)
    return tl.maximum(row + left_offset, 0), end


@triton.jit
def keys_of_few(
    seqlen_q, seqlen_k, causal_offset, left_offset, CAUSAL: tl.constexpr, FEW: tl.constexpr,
    ROOM: tl.constexpr,
):  # fmt: skip
    """Of one sequence whether a row sees at most ``FEW`` keys, as ``keys_seen`` in
    common/numerics/exactness.py has it, and the first key that any row sees, rounded down to what
    ``kept`` counts from."""
    seen = seqlen_k
    if CAUSAL:
        seen = (tl.maximum(tl.minimum(causal_offset + 1, seqlen_k), 1) + seqlen_k) // 2
    few = seen <= FEW
    first = 0
    if left_offset is not None:
        begin, _ = keys_seen_by_row(0, seqlen_k, causal_offset, left_offset, CAUSAL)
        first = begin // 16 * 16
        most = 0
        for i in tl.static_range(3):
            row = i * (seqlen_q // 2) if i < 2 else seqlen_q - 1
            begin, end = keys_seen_by_row(row, seqlen_k, causal_offset, left_offset, CAUSAL)
            most = tl.maximum(most, end - begin)
        few = few | (most <= FEW)
        # Between these rows others of a wide window may see what no tile holds.
        few = few & (end - first <= ROOM)
    return few & (seqlen_q > 0) & (seqlen_k > 0), first


@triton.jit
def load_far(
    tensor, i_row, rows, strides, WIDTH: tl.constexpr, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """[BLOCK, BLOCK_D]: rows from ``i_row`` on, however far apart, zeros beyond ``rows``."""
    o_r = i_row + tl.arange(0, BLOCK)
    o_d = tl.arange(0, BLOCK_D)
    return tl.load(
        tensor
        + (o_r.to(tl.int64)[:, None] * strides.row + o_d.to(tl.int64)[None, :] * strides.column),
        mask=(o_r[:, None] < rows) & (o_d[None, :] < WIDTH),
        other=0.0,
    )


@triton.jit
def store_rows(
    to, b_x, i_row, rows, width, WIDTH: tl.constexpr, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr
):
    """Put a tile into rows from ``i_row`` on of ``width`` numbers each, of which it has WIDTH."""
    o_r = i_row + tl.arange(0, BLOCK)
    o_d = tl.arange(0, BLOCK_D)
    tl.store(
        to + (o_r.to(tl.int64)[:, None] * width + o_d[None, :]),
        b_x.to(to.dtype.element_ty),
        mask=(o_r[:, None] < rows) & (o_d[None, :] < WIDTH),
    )


@triton.jit(do_not_specialize=["batch", "heads_per_kv", "tokens_q", "tokens_k"])
def attention_backward_few(
    q,
    k,
    v,
    dout,
    dlse,
    dq,
    dk,
    dv,
    sequences,
    strides,
    batch,
    heads,
    heads_per_kv,
    tokens_q,
    tokens_k,
    causal_offset,
    left_offset,
    scale,
    asked,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_V: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_DV: tl.constexpr,
    CAUSAL: tl.constexpr,
    FEW: tl.constexpr,
):
    """dq, dk and dv, contiguous, of sequences whose rows see at most FEW keys, where they stand;
    and what ``clear_behind`` does. A program walks all rows of a head of keys of a sequence, and
    then its next one. The rest is as portable/backward/key_grads.py takes it."""
    cu_q, cu_k = sequences
    kv_heads = heads // heads_per_kv
    clear_behind(
        dq, dk, dv, None, cu_q, cu_k, batch, heads, tokens_q, tokens_k, heads * HEAD_DIM,
        kv_heads * HEAD_DIM, kv_heads * HEAD_DIM_V,
    )  # fmt: skip
    o_m = tl.arange(0, BLOCK_M)
    o_n = tl.arange(0, BLOCK_N)
    for i in range(tl.program_id(0), batch * kv_heads, tl.num_programs(0)):
        i_b = i // kv_heads
        i_kv = i % kv_heads
        o_q, seqlen_q = bounds(cu_q, i_b)
        o_k, seqlen_k = bounds(cu_k, i_b)
        o_row = o_q.to(tl.int64)
        o_own = o_k.to(tl.int64)
        o_kv = i_kv.to(tl.int64)
        more = seqlen_k - seqlen_q
        last = causal_offset + more
        first = None if left_offset is None else left_offset + more
        few, i_n = keys_of_few(seqlen_q, seqlen_k, last, first, CAUSAL, FEW, BLOCK_N)
        if few:
            # [BLOCK_N, BLOCK_D]
            b_k = load_far(
                k + o_own * strides.k.row + o_kv * strides.k.head, i_n, seqlen_k, strides.k,
                HEAD_DIM, BLOCK_N, BLOCK_D,
            )  # fmt: skip
            b_v = load_far(
                v + o_own * strides.v.row + o_kv * strides.v.head, i_n, seqlen_k, strides.v,
                HEAD_DIM_V, BLOCK_N, BLOCK_DV,
            )  # fmt: skip
            b_dk = tl.zeros([BLOCK_N, BLOCK_D], dtype=tl.float32)
            b_dv = tl.zeros([BLOCK_N, BLOCK_DV], dtype=tl.float32)
            b_seed = None if asked.seed is None else tl.load(asked.seed)
            # Of rows before the first that sees a key the pass before left zeros.
            i_first = 0
            if CAUSAL:
                i_first = tl.maximum(-last, 0) // BLOCK_M
            n_blocks = tl.cdiv(seqlen_q, BLOCK_M) - i_first
            for j in range(0, n_blocks * heads_per_kv):
                i_m = (i_first + j % n_blocks) * BLOCK_M
                i_h = i_kv * heads_per_kv + j // n_blocks
                o_h = i_h.to(tl.int64)
                # [BLOCK_M, BLOCK_D]
                b_q = load_far(
                    q + o_row * strides.q.row + o_h * strides.q.head, i_m, seqlen_q, strides.q,
                    HEAD_DIM, BLOCK_M, BLOCK_D,
                )  # fmt: skip
                b_dout = load_far(
                    dout + o_row * strides.dout.row + o_h * strides.dout.head, i_m, seqlen_q,
                    strides.dout, HEAD_DIM_V, BLOCK_M, BLOCK_DV,
                )  # fmt: skip
                b_slope = None if asked.slopes is None else slope_of(asked, i_b, i_h)
                own = OfHead(b_slope, b_seed, None, None)
                i_score = i_b * heads + i_h
                scores = Scores(asked, None, own, more, seqlen_q, seqlen_k, None, i_score)
                # [BLOCK_M, BLOCK_N]
                b_s, b_by = modified(
                    head_product(b_q, b_k), scores, i_m, o_m[:, None], i_n, o_n[None, :], False
                )
                seen = i_n + o_n[None, :] < seqlen_k
                if CAUSAL:
                    seen = seen & (i_n + o_n[None, :] <= i_m + o_m[:, None] + last)
                if left_offset is not None:
                    seen = seen & (i_n + o_n[None, :] >= i_m + o_m[:, None] + first)
                unit = scale if asked.factor is None else 1.0
                b_s = tl.where(seen, b_s * (unit * TO_BASE_2), float("-inf"))
                b_most = tl.max(b_s, 1)
                if asked.sinks is not None:
                    b_sink = tl.load(asked.sinks + i_h) * TO_BASE_2
                    b_most = tl.maximum(b_most, b_sink)
                # A row without a key has weights of 0, not NaN.
                b_most = tl.where(b_most == float("-inf"), 0.0, b_most)
                b_p = tl.exp2(b_s - b_most[:, None])
                b_total = tl.sum(b_p, 1)
                if asked.sinks is not None:
                    b_total += tl.exp2(b_sink - b_most)
                b_p = divided(b_p, tl.where(b_total == 0.0, 1.0, b_total)[:, None])
                # Of one key the weight is 1 and delta this very product: their difference is 0.
                b_dp = head_product(b_dout, b_v)
                b_kept = b_p
                if asked.seed is not None:
                    b_keep = kept(scores, i_m, i_n, BLOCK_M, BLOCK_N)
                    b_dp = dropped(b_dp, b_keep, scores, True)
                    b_kept = dropped(b_p, b_keep, scores)
                b_ds = b_dp - tl.sum(b_p * b_dp, 1)[:, None]
                if dlse is not None:
                    at = dlse + o_h * tokens_q + o_row + i_m + o_m
                    b_ds += tl.load(at, mask=i_m + o_m < seqlen_q, other=0.0)[:, None]
                b_ds = b_p * b_ds * b_by
                b_dv = add_product(b_dv, b_kept.T, b_dout)
                b_dk = add_product(b_dk, b_ds.T, b_q)
                b_dq = tl.dot(b_ds.to(b_k.dtype), b_k) * scale
                store_rows(
                    dq + (o_row * heads + i_h) * HEAD_DIM, b_dq, i_m, seqlen_q, heads * HEAD_DIM,
                    HEAD_DIM, BLOCK_M, BLOCK_D,
                )  # fmt: skip
            o_own = o_own * kv_heads + o_kv
            store_rows(
                dk + o_own * HEAD_DIM, b_dk * scale, i_n, seqlen_k, kv_heads * HEAD_DIM, HEAD_DIM,
                BLOCK_N, BLOCK_D,
            )  # fmt: skip
            store_rows(
                dv + o_own * HEAD_DIM_V, b_dv, i_n, seqlen_k, kv_heads * HEAD_DIM_V, HEAD_DIM_V,
                BLOCK_N, BLOCK_DV,
            )  # fmt: skip


def cut(target: targets.Target, block_n: int, block_d: int) -> tuple[int, int]:
    """Rows of a tile, and warps. Found with the compiler: up to 128 columns nothing spills."""
    if target.is_amd:
        return 16, 4
    return 16 if block_d > 128 else 32, 8 if block_n * block_d > 32 * 64 else 4


def launch(problem: Problem, given: Given, gradients: list[torch.Tensor], *, few: int) -> None:
    """Of 16-bit packed sequences, any strides, and ``gradients`` of q, k and v, contiguous, those
    of sequences whose rows see at most ``few`` keys; after the last sequence, zeros. Nothing is
    allocated."""
    mask, batch = problem.mask, problem.batch
    q, k, v, dout = (one[0] for one in (problem.q, problem.k, problem.v, given.dout))
    block_n = MASKED_BLOCK_N if mask.causal or mask.left is not None else BLOCK_N
    with targets.on_device_of(q):
        target = targets.current()
        tiles = problem.tiles(target)
        block_m, num_warps = cut(target, block_n, max(tiles["BLOCK_D"], tiles["BLOCK_DV"]))
        programs = min(MOST_PROGRAMS, batch * problem.kv_heads)
        noted(attention_backward_few, (max(programs, programs_for(*gradients)),))(
            q=q,
            k=k,
            v=v,
            dout=dout,
            dlse=given.dlse,
            dq=gradients[0],
            dk=gradients[1],
            dv=gradients[2],
            sequences=problem.sequences,
            strides=Layout.of(q=q, k=k, v=v, dout=dout),
            batch=batch,
            heads=problem.heads,
            heads_per_kv=problem.heads // problem.kv_heads,
            tokens_q=q.shape[0],
            tokens_k=k.shape[0],
            **problem.sight,
            scale=problem.scale,
            BLOCK_M=block_m,
            BLOCK_N=block_n,
            **tiles,
            FEW=few,
            num_warps=num_warps,
            num_stages=1,
        )
