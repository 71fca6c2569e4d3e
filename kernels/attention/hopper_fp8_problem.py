"""What Hopper's fp8 attention computes and in which order: sizes, tiles, blocks of keys (Gluon).

hopper_problem.py knows windows and packed sequences too; these are the plain ones, whose sizes can
be had anew. Aggregates read their annotations when they are built, so nothing here postpones them.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.core import _aggregate as aggregate

from .hopper_order import anew, in_pairs, rounds, seen_blocks, to_and_fro, whole_first


@aggregate
class Fp8Problem:
    """Sizes, and how they are cut."""

    heads: gl.tensor
    heads_per_kv: gl.tensor
    batch: gl.tensor
    seqlen_q: gl.tensor
    seqlen_k: gl.tensor
    causal_offset: gl.tensor
    CONSUMERS: gl.constexpr
    BLOCK_M: gl.constexpr
    BLOCK_N: gl.constexpr
    HEAD_DIM: gl.constexpr
    CAUSAL: gl.constexpr
    BY_SEQUENCE: gl.constexpr
    PAIRS: gl.constexpr
    SKIP: gl.constexpr

    @gluon.constexpr_function
    def __init__(
        self, heads, heads_per_kv, batch, seqlen_q, seqlen_k, causal_offset,
        CONSUMERS, BLOCK_N, HEAD_DIM, CAUSAL, BY_SEQUENCE, PAIRS, SKIP,
    ):  # fmt: skip
        self.heads = heads
        self.heads_per_kv = heads_per_kv
        self.batch = batch
        self.seqlen_q = seqlen_q
        self.seqlen_k = seqlen_k
        self.causal_offset = causal_offset
        self.CONSUMERS = gl.constexpr(CONSUMERS)
        self.BLOCK_M = gl.constexpr(64 * CONSUMERS)
        self.BLOCK_N = gl.constexpr(BLOCK_N)
        self.HEAD_DIM = gl.constexpr(HEAD_DIM)
        self.CAUSAL = gl.constexpr(CAUSAL)
        self.BY_SEQUENCE = gl.constexpr(BY_SEQUENCE)
        self.PAIRS = gl.constexpr(PAIRS)
        self.SKIP = gl.constexpr(SKIP)

    @gluon.jit
    def sizes_anew(self):
        return Fp8Problem(
            anew(self.heads), self.heads_per_kv, self.batch, anew(self.seqlen_q),
            anew(self.seqlen_k), anew(self.causal_offset), self.CONSUMERS, self.BLOCK_N,
            self.HEAD_DIM, self.CAUSAL, self.BY_SEQUENCE, self.PAIRS, self.SKIP,
        )  # fmt: skip

    @gluon.jit
    def turns(self):
        """How many blocks of rows a program walks at most."""
        n_m = gl.cdiv(self.seqlen_q, self.BLOCK_M)
        return rounds(n_m, self.heads * self.batch, self.PAIRS)

    @gluon.jit
    def tile(self, i_turn):
        """Block of rows, head and batch of this program's turn, and whether it exists: full
        attention by whole blocks first, causal by longest first, or by PAIRS of a long and a short
        block of one head. hopper_problem.py tells why."""
        n_m = gl.cdiv(self.seqlen_q, self.BLOCK_M)
        n_heads = self.heads * self.batch
        if self.PAIRS:
            i_m, i_bh, exists = in_pairs(i_turn, n_m, n_heads)
        else:
            i_tile = to_and_fro(i_turn)
            exists = i_tile < n_m * n_heads
            if self.CAUSAL:
                i_m = n_m - 1 - i_tile // n_heads
                i_bh = i_tile % n_heads
            else:
                i_m, i_bh = whole_first(i_tile, self.seqlen_q // self.BLOCK_M, n_heads)
        return i_m, i_bh % self.heads, i_bh // self.heads, exists

    @gluon.jit
    def factors_at(self, i_h, i_b):
        """Where those of a head begin; its output's stands ``heads`` behind its scores'."""
        if self.BY_SEQUENCE:
            return i_b * (2 * self.heads) + i_h
        else:
            return i_h

    @gluon.jit
    def blocks(self, row, N_ROWS: gl.constexpr):
        """``seen_blocks`` of the rows [row, row + N_ROWS)."""
        return seen_blocks(
            row, self.seqlen_q, self.seqlen_k, self.causal_offset, N_ROWS, self.BLOCK_N, self.CAUSAL
        )
