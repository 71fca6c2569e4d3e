"""What Hopper's fp8 attention computes and in which order: sizes, tiles, blocks of keys (Gluon).

hopper/problem.py knows windows too, and has what is said of packed sequences; the sizes here can be
had anew. Aggregates read their annotations when they are built, so nothing here postpones them.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from kernels.attention.hopper.problem import Sequence, listed_tile, listed_turns
from kernels.attention.hopper.tile_order import (
    anew,
    in_pairs,
    rounds,
    seen_blocks,
    to_and_fro,
    whole_first,
)
from kernels.device.aggregates import aggregate, computed


@aggregate
class Fp8Problem:
    """Sizes, and how they are cut. Of packed sequences ``batch`` and ``seqlen_k`` are not used,
    ``seqlen_q`` counts the rows of all, and the tiles are listed: ``tiles`` points there, and is
    None else. Their values lie in rooms of whole ROOM columns (hopper/fp8/prepare.py); ROOM is 0
    where none are packed."""

    heads: gl.tensor
    heads_per_kv: gl.tensor
    batch: gl.tensor
    seqlen_q: gl.tensor
    seqlen_k: gl.tensor
    causal_offset: gl.tensor
    CONSUMERS: gl.constexpr
    BLOCK_M: gl.constexpr = computed("64 * CONSUMERS")
    BLOCK_N: gl.constexpr
    HEAD_DIM: gl.constexpr
    CAUSAL: gl.constexpr
    BY_SEQUENCE: gl.constexpr
    PAIRS: gl.constexpr
    SKIP: gl.constexpr
    ROOM: gl.constexpr
    PACKED: gl.constexpr = computed("ROOM > 0")
    ONCE: gl.constexpr = computed("False")

    @gluon.jit
    def sizes_anew(self):
        return Fp8Problem(
            anew(self.heads), self.heads_per_kv, self.batch, anew(self.seqlen_q),
            anew(self.seqlen_k), anew(self.causal_offset), self.CONSUMERS, self.BLOCK_N,
            self.HEAD_DIM, self.CAUSAL, self.BY_SEQUENCE, self.PAIRS, self.SKIP, self.ROOM,
        )  # fmt: skip

    @gluon.jit
    def turns(self, tiles):
        """How many blocks of rows a program walks at most."""
        if self.PACKED:
            return listed_turns(tiles, self.PAIRS)
        else:
            n_m = gl.cdiv(self.seqlen_q, self.BLOCK_M)
            return rounds(n_m, self.heads * self.batch, self.PAIRS)

    @gluon.jit
    def tile(self, i_turn, tiles):
        """First row, head and sequence of this program's turn, whether it exists, and the
        sequence's number."""
        if self.PACKED:
            last = self.causal_offset
            i_m, i_h, own, exists, i_b = listed_tile(i_turn, tiles, last, last, self.PAIRS)
            return i_m * self.BLOCK_M, i_h, own, exists, i_b
        else:
            return self.walked(i_turn)

    @gluon.jit
    def walked(self, i_turn):
        """``tile`` of a plain batch: full attention by whole blocks first, causal by longest first,
        or by PAIRS of a long and a short block of one head. hopper/problem.py tells why."""
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
        i_h = i_bh % self.heads
        i_b = i_bh // self.heads
        last = self.causal_offset
        own = Sequence(i_b, i_b, self.seqlen_q, self.seqlen_k, last, last, False)
        return i_m * self.BLOCK_M, i_h, own, exists, i_b

    @gluon.jit
    def factors_at(self, i_h, i_b):
        """Where those of a head begin; its output's stands ``heads`` behind its scores'."""
        if self.BY_SEQUENCE:
            return i_b * (2 * self.heads) + i_h
        else:
            return i_h

    @gluon.jit
    def v_box(self, own, i_b, i_kv, row):
        """Coordinates of the box of transposed values whose first key is ``row``."""
        if self.PACKED:
            room = ((own.k_at - own.seqlen_k) // self.ROOM + i_b) * self.ROOM
            return [0, i_kv, 0, room + row]
        else:
            return [i_b, i_kv, 0, row]

    @gluon.jit
    def first_lse(self, own, i_b, i_h):
        """Where in lse the sequence's first row of a head stands."""
        if self.PACKED:
            return i_h.to(gl.int64) * self.seqlen_q + (own.q_at - own.seqlen_q)
        else:
            return (i_b * self.heads + i_h).to(gl.int64) * self.seqlen_q

    @gluon.jit
    def blocks(self, own, row, N_ROWS: gl.constexpr):
        """``seen_blocks`` of the rows [row, row + N_ROWS)."""
        return seen_blocks(
            row, own.seqlen_q, own.seqlen_k, own.causal_offset, N_ROWS, self.BLOCK_N, self.CAUSAL
        )

    @gluon.jit
    def left_blocks(self, own, row, n_blocks, N_ROWS: gl.constexpr):
        """As ``Problem`` has it: no window cuts a block."""
        return 0, 0
