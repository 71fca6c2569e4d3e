"""Which rows a program of hopper/backward/heavy_rows/kernel.py corrects, and what it keeps of them
(Gluon).

Aggregates read their annotations when they are built, so nothing here postpones them.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from kernels.attention.common.packed.sequences import bounds
from kernels.attention.common.program_order import block_of
from kernels.attention.hopper.problem import Sequence
from kernels.device.aggregates import aggregate, computed
from kernels.device.hopper_rings import ROWS, Ring

BLOCK_M = gl.constexpr(128)  # rows of a program, 64 a consumer
# Blocks of rows whose marks are told in one number, two bits each.
SOME = gl.constexpr(32)
# Such numbers a program has at most.
MOST = gl.constexpr(128)


@aggregate
class Memory:
    """Rings of Q and dO for each consumer, of K and V for both; and which consumers' rows have
    marks, SOME turns of the program a number."""

    q_0: Ring
    q_1: Ring
    dout_0: Ring
    dout_1: Ring
    k: Ring
    v: Ring
    found: gl.shared_memory_descriptor


@aggregate
class Tile:
    """128 rows of one head, from ``row`` on, where their log-sum-exps begin, and the blocks of keys
    from ``first`` up to ``end`` that those with marks see."""

    own: Sequence
    i_h: gl.tensor
    i_kv: gl.tensor
    row: gl.tensor
    o_row: gl.tensor
    first: gl.tensor
    end: gl.tensor
    seqlen_k: gl.tensor = computed("own.seqlen_k")
    causal_offset: gl.tensor = computed("own.causal_offset")
    left_offset: gl.tensor = computed("own.left_offset")
    BLOCK_N: gl.constexpr
    HEAD_DIM: gl.constexpr
    CAUSAL: gl.constexpr
    WINDOW: gl.constexpr


@aggregate
class Plan:
    """All blocks of rows, ``n_blocks`` a head, ``n_all`` in all. Of packed sequences, of which
    ``cu_q`` and ``cu_k`` tell where each begins, ``tokens`` counts the rows of all. IN_TURNS: two
    consumers that both have marks multiply in turns."""

    n_blocks: gl.tensor
    n_all: gl.tensor
    heads: gl.tensor
    heads_per_kv: gl.tensor
    seqlen_q: gl.tensor
    seqlen_k: gl.tensor
    tokens: gl.tensor
    causal_offset: gl.tensor
    left_offset: gl.tensor
    BLOCK_N: gl.constexpr
    HEAD_DIM: gl.constexpr
    CAUSAL: gl.constexpr
    WINDOW: gl.constexpr
    PACKED: gl.constexpr
    IN_TURNS: gl.constexpr

    @gluon.jit
    def rounds(self):
        """How many numbers tell of a program's turns."""
        return gl.cdiv(self.n_all, gl.num_programs(0) * SOME)

    @gluon.jit
    def tile(self, i_turn, which, cu_q, cu_k):
        """The block of rows of this program's turn, of which ``which`` halves (bits) have marks."""
        i_block = block_of(0, i_turn, gl.num_programs(0))
        row = i_block % self.n_blocks * BLOCK_M
        i_bh = i_block // self.n_blocks
        i_b = i_bh // self.heads
        i_h = i_bh % self.heads
        seqlen_q, seqlen_k = self.seqlen_q, self.seqlen_k
        last, left = self.causal_offset, self.left_offset
        q_at, k_at = i_b, i_b
        o_row = i_bh.to(gl.int64) * seqlen_q + row
        if self.PACKED:
            o_q, seqlen_q = bounds(cu_q, i_b)
            o_k, seqlen_k = bounds(cu_k, i_b)
            q_at = o_q + seqlen_q
            k_at = o_k + seqlen_k
            last += seqlen_k - seqlen_q
            left += seqlen_k - seqlen_q
            o_row = i_h.to(gl.int64) * self.tokens + o_q + row
        first = row * 0
        end = gl.cdiv(seqlen_k, self.BLOCK_N)
        if self.CAUSAL:
            seen = row + gl.where(which == 1, ROWS, BLOCK_M) + last
            end = gl.minimum(end, gl.cdiv(gl.maximum(seen, 0), self.BLOCK_N))
        end = gl.maximum(end, 1)  # rows are waited for even where they see no key
        if self.WINDOW:
            seen = row + gl.where(which == 2, ROWS, 0) + left
            first = gl.minimum(gl.maximum(seen, 0) // self.BLOCK_N, end - 1)
        own = Sequence(q_at, k_at, seqlen_q, seqlen_k, last, left, self.PACKED)
        return Tile(
            own, i_h, i_h // self.heads_per_kv, row, o_row, first, end,
            self.BLOCK_N, self.HEAD_DIM, self.CAUSAL, self.WINDOW,
        )  # fmt: skip
