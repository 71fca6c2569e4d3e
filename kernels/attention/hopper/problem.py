"""What Hopper's attention computes and in which order: sizes, tiles, and blocks of keys (Gluon).

Aggregates read their annotations when they are built, so nothing here postpones them.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from kernels.attention.hopper.packed.tiles import FIELDS
from kernels.device.aggregates import aggregate, computed

from .tile_order import (
    ALONE,
    anew,
    in_groups,
    in_pairs,
    rounds,
    seen_blocks,
    to_and_fro,
    whole_first,
)

# Where rows of a packed tensor end: hopper/forward/launch.py says how.
BEYOND = gl.constexpr(1 << 30)


@aggregate
class Sequence:
    """Queries and keys of one entry of the batch.

    ``q_at`` and ``k_at`` say where descriptors find them: the entry or, of packed sequences, the
    row behind their last.
    """

    q_at: gl.tensor
    k_at: gl.tensor
    seqlen_q: gl.tensor
    seqlen_k: gl.tensor
    causal_offset: gl.tensor
    left_offset: gl.tensor
    PACKED: gl.constexpr

    @gluon.jit
    def q_box(self, i_h, row, column=0):
        """Coordinates of the box of queries, or of output, that begins with ``row``."""
        if self.PACKED:
            return [BEYOND, self.q_at, i_h, BEYOND - self.seqlen_q + row, column]
        else:
            return [self.q_at, i_h, row, column]

    @gluon.jit
    def k_box(self, i_kv, row):
        """Coordinates of the box of keys, or of values, that begins with ``row``."""
        if self.PACKED:
            return [BEYOND, self.k_at, i_kv, BEYOND - self.seqlen_k + row, 0]
        else:
            return [self.k_at, i_kv, row, 0]


@aggregate
class Problem:
    """Sizes, and how they are cut. Of packed sequences ``batch`` is not used, ``seqlen_q`` counts
    the rows of all, and the tiles are listed: ``tiles`` points there, and is None else. EVEN: keys
    fill every block; ONE: a block holds them all; ONCE: a program has one tile,
    and its first copies were requested before its warps parted. ``heads_together`` and LAST_ALONE
    are of the order of causal tiles (hopper/tile_order.py).

    In fp8 values are TURNED, keys side by side: those of packed sequences lie in rooms of whole
    ROOM columns (hopper/fp8/prepare.py), and factors are those of the problem or BY_SEQUENCE.
    There LAST_ALONE, WINDOW, TAILS, EVEN, ONE and ONCE are False, and ``scale_log2`` is not used.
    """

    heads: gl.tensor
    heads_per_kv: gl.tensor
    batch: gl.tensor
    seqlen_q: gl.tensor
    seqlen_k: gl.tensor
    causal_offset: gl.tensor
    left_offset: gl.tensor
    heads_together: gl.tensor
    whole_each: gl.tensor
    whole_more: gl.tensor
    tail: gl.tensor
    scale_log2: gl.tensor
    CONSUMERS: gl.constexpr
    BLOCK_M: gl.constexpr = computed("64 * CONSUMERS")
    BLOCK_N: gl.constexpr
    HEAD_DIM: gl.constexpr
    REST: gl.constexpr
    SPLIT: gl.constexpr
    CAUSAL: gl.constexpr
    PAIRS: gl.constexpr
    LAST_ALONE: gl.constexpr
    IN_TURNS: gl.constexpr
    OUT_IN_Q: gl.constexpr
    SKIP: gl.constexpr
    PACKED: gl.constexpr
    WINDOW: gl.constexpr
    TAILS: gl.constexpr
    EVEN: gl.constexpr
    ONE: gl.constexpr
    ONCE: gl.constexpr
    TURNED: gl.constexpr
    BY_SEQUENCE: gl.constexpr
    ROOM: gl.constexpr

    @gluon.jit
    def sizes_anew(self):
        """The same; a tile that asks makes its numbers of blocks itself."""
        return Problem(
            anew(self.heads), self.heads_per_kv, self.batch, anew(self.seqlen_q),
            anew(self.seqlen_k), anew(self.causal_offset), self.left_offset, self.heads_together,
            self.whole_each, self.whole_more, self.tail, self.scale_log2, self.CONSUMERS,
            self.BLOCK_N, self.HEAD_DIM, self.REST, self.SPLIT, self.CAUSAL, self.PAIRS,
            self.LAST_ALONE, self.IN_TURNS, self.OUT_IN_Q, self.SKIP, self.PACKED, self.WINDOW,
            self.TAILS, self.EVEN, self.ONE, self.ONCE, self.TURNED, self.BY_SEQUENCE, self.ROOM,
        )  # fmt: skip

    @gluon.jit
    def tails(self, n_whole):
        """Tiles of ``tail`` warpgroups behind ``n_whole`` whole ones of a head."""
        return gl.cdiv(gl.cdiv(self.seqlen_q, 64) - n_whole * self.CONSUMERS, self.tail)

    @gluon.jit
    def turns(self, tiles):
        """How many blocks of rows a program walks at most."""
        n_m = gl.cdiv(self.seqlen_q, self.BLOCK_M)
        n_heads = self.heads * self.batch
        if self.PACKED:
            n_rounds = gl.cdiv(gl.load(tiles), gl.num_programs(0))
            return 2 * n_rounds if self.PAIRS else n_rounds
        elif self.ONCE:
            return 1
        elif self.TAILS:
            n_tails = self.tails(self.whole_each) * (n_heads - self.whole_more)
            n_tails += self.tails(self.whole_each + 1) * self.whole_more
            n_whole = self.whole_each * n_heads + self.whole_more
            return gl.cdiv(n_whole + n_tails, gl.num_programs(0))
        else:
            return rounds(n_m, n_heads, self.PAIRS, ALONE if self.LAST_ALONE else 0)

    @gluon.jit
    def tile(self, i_turn, tiles):
        """First row, head and sequence of this program's turn, whether it exists, and the
        sequence's number; of packed sequences in the order of the list (hopper/packed/tiles.py),
        every other round backwards."""
        if self.PACKED:
            i_unit = to_and_fro(i_turn // 2 if self.PAIRS else i_turn)
            # There is room after the last: all is read at once and then perhaps not used.
            at = tiles + (1 + i_unit) * FIELDS
            i_h = gl.load(at)
            i_m = gl.load(at + 1 + i_turn % 2) if self.PAIRS else gl.load(at + 1)
            seqlen_q = gl.load(at + 4)
            seqlen_k = gl.load(at + 6)
            last = self.causal_offset + seqlen_k - seqlen_q
            first = self.left_offset + seqlen_k - seqlen_q
            own = Sequence(gl.load(at + 3), gl.load(at + 5), seqlen_q, seqlen_k, last, first, True)
            exists = (i_unit < gl.load(tiles)) & (i_m >= 0)
            return i_m * self.BLOCK_M, i_h, own, exists, gl.load(at + 7)
        else:
            return self.walked(i_turn)

    @gluon.jit
    def walked(self, i_turn):
        """``tile`` of a plain batch.

        Full attention walks the whole blocks of a head side by side, every other turn backwards,
        and in the end each head's last, of fewer rows: those who had a whole block less take two.
        With TAILS a head has ``whole_each`` whole blocks, the first ``whole_more`` heads one more,
        and then blocks of ``tail`` warpgroups: hopper/forward/tail_cut.py chooses them. The
        sequence ends for a program where its block does.
        Causal rows come in groups of heads, every other turn backwards; or, with PAIRS, a long and
        a short block of one head follow each other: ``in_groups`` and ``in_pairs`` have why. With
        ONCE the grid is one of tiles: a division would hold up the first copy.
        """
        n_m = gl.cdiv(self.seqlen_q, self.BLOCK_M)
        n_heads = self.heads * self.batch
        end = self.seqlen_q
        exists = True
        if self.ONCE:
            i_m, i_h, i_b = gl.program_id(0), gl.program_id(1), gl.program_id(2)
        elif self.TAILS:
            i_tile = to_and_fro(i_turn)
            n_whole = self.whole_each * n_heads + self.whole_more
            is_tail = i_tile >= n_whole
            i_kind = gl.where(is_tail, i_tile - n_whole, i_tile)
            # Tiles of this kind that heads have: the first ``whole_more`` heads, and the others.
            of_first = gl.where(is_tail, self.tails(self.whole_each + 1), self.whole_each + 1)
            of_others = gl.where(is_tail, self.tails(self.whole_each), self.whole_each)
            i_others = i_kind - of_first * self.whole_more
            first = i_others < 0
            of_first = gl.maximum(of_first, 1)
            of_others = gl.maximum(of_others, 1)
            i_bh = gl.where(first, i_kind // of_first, self.whole_more + i_others // of_others)
            i_own = gl.where(first, i_kind % of_first, i_others % of_others)
            whole = self.whole_each + gl.where(first, 1, 0)
            rows = gl.where(is_tail, self.tail * 64, self.BLOCK_M)
            row = i_own * rows + gl.where(is_tail, whole * self.BLOCK_M, 0)
            end = gl.minimum(end, row + rows)
            exists = i_bh < n_heads
        elif self.PAIRS:
            LAST: gl.constexpr = ALONE if self.LAST_ALONE else 0
            i_m, i_bh, exists = in_pairs(i_turn, n_m, n_heads, LAST)
        elif self.CAUSAL:
            i_m, i_bh, exists = in_groups(to_and_fro(i_turn), n_m, n_heads, self.heads_together)
        else:
            i_tile = to_and_fro(i_turn)
            i_m, i_bh = whole_first(i_tile, self.seqlen_q // self.BLOCK_M, n_heads)
            exists = i_tile < n_m * n_heads
        if not self.ONCE:
            i_b = i_bh // self.heads
            i_h = i_bh % self.heads
        seqlen_k, last, first = self.seqlen_k, self.causal_offset, self.left_offset
        if self.WINDOW and self.HEAD_DIM <= 128:
            seqlen_k, last, first = anew(seqlen_k), anew(last), anew(first)
        own = Sequence(i_b, i_b, end, seqlen_k, last, first, False)
        if not self.TAILS:
            row = i_m * self.BLOCK_M
        return row, i_h, own, exists, i_b

    @gluon.jit
    def v_box(self, own, i_b, i_kv, row):
        """Coordinates of the box of values that begins with ``row``."""
        if not self.TURNED:
            return own.k_box(i_kv, row)
        elif self.PACKED:
            room = ((own.k_at - own.seqlen_k) // self.ROOM + i_b) * self.ROOM
            return [0, i_kv, 0, room + row]
        else:
            return [i_b, i_kv, 0, row]

    @gluon.jit
    def factors_at(self, i_h, i_b):
        """Where those of a head begin; its output's stands ``heads`` after its scores'."""
        return i_b * (2 * self.heads) + i_h if self.BY_SEQUENCE else i_h

    @gluon.jit
    def first_lse(self, own, i_h):
        """Where in lse the sequence's first row of a head stands."""
        if self.PACKED:
            return i_h.to(gl.int64) * self.seqlen_q + (own.q_at - own.seqlen_q)
        else:
            return (own.q_at * self.heads + i_h).to(gl.int64) * self.seqlen_q

    @gluon.jit
    def blocks(self, own, row, N_ROWS: gl.constexpr):
        """``seen_blocks`` of the rows [row, row + N_ROWS)."""
        return seen_blocks(
            row, own.seqlen_q, own.seqlen_k, own.causal_offset, N_ROWS, self.BLOCK_N, self.CAUSAL
        )

    @gluon.jit
    def left_blocks(self, own, row, n_blocks, N_ROWS: gl.constexpr):
        """The first block of keys that rows [row, row + N_ROWS) need, of ``n_blocks``; and the
        first that no row's left limit cuts."""
        if self.WINDOW:
            first = max(0, row + own.left_offset) // self.BLOCK_N
            uncut = max(0, row + N_ROWS - 1 + own.left_offset)
            return min(first, n_blocks - 1), (uncut + self.BLOCK_N - 1) // self.BLOCK_N
        else:
            return 0, 0
