"""Which blocks of keys a program of the one-pass gradients takes, one after the other (Gluon).

Aggregates read their annotations when they are built, so nothing here postpones them.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from kernels.attention.hopper.backward.block import Work
from kernels.attention.hopper.packed.tiles import FIELDS
from kernels.attention.hopper.problem import Sequence
from kernels.attention.hopper.tile_order import ALONE, anew, in_pairs, rounds, to_and_fro
from kernels.device.aggregates import aggregate

AT_ONCE = gl.constexpr(32)
# Blocks of a head that programs have at a time, at least, where those of all heads follow each
# other.
NEIGHBOURS = gl.constexpr(8)


@aggregate
class Order:
    """All blocks of keys of a launch.

    Causal ones come in pairs of a head, a long and a short one, so that all programs have as much
    to do. In full attention all blocks take alike. In a window so do all but the last of a head:
    where heads are few, the blocks of all heads come in the order of their length. Packed sequences
    have a list of theirs, those of the longest first (hopper/packed/tiles.py): ``tiles`` of the
    methods, which is None else. batch then counts them, and seqlen_q and seqlen_k are the sums of
    all.
    """

    heads: gl.tensor
    kv_heads: gl.tensor
    batch: gl.tensor
    seqlen_q: gl.tensor
    seqlen_k: gl.tensor
    causal_offset: gl.tensor
    left_offset: gl.tensor
    BLOCK_M: gl.constexpr
    BLOCK_N: gl.constexpr
    HEAD_DIM: gl.constexpr
    CAUSAL: gl.constexpr
    EVEN: gl.constexpr
    WINDOW: gl.constexpr
    PACKED: gl.constexpr
    PAIRS: gl.constexpr
    DTYPE: gl.constexpr

    @gluon.jit
    def turns(self, tiles):
        """How many blocks a program has at most."""
        if self.PACKED:
            n_rounds = gl.cdiv(gl.load(tiles), gl.num_programs(0))
            return 2 * n_rounds if self.PAIRS else n_rounds
        else:
            n_n = gl.cdiv(self.seqlen_k, self.BLOCK_N)
            return rounds(n_n, self.batch * self.kv_heads, self.PAIRS, ALONE)

    @gluon.jit
    def first_bound(self, work):
        """Where the bounds of a block's head begin, how many there are, and how much later those
        of V begin."""
        n_n = gl.cdiv(work.seqlen_k, self.BLOCK_N)
        if self.PACKED:
            n_k = self.seqlen_k // self.BLOCK_N + self.batch
            before = (work.own.k_at - work.seqlen_k) // self.BLOCK_N + work.i_b
            return work.i_kv * n_k + before, n_n, n_k * self.kv_heads
        else:
            first = (work.i_b * self.kv_heads + work.i_kv) * n_n
            return first, n_n, self.batch * self.kv_heads * n_n

    @gluon.jit
    def work(self, i_turn, tiles):
        """The block of a turn; less than 0 steps: there is none."""
        heads, kv_heads, batch = anew(self.heads), anew(self.kv_heads), anew(self.batch)
        seqlen_q, seqlen_k = anew(self.seqlen_q), anew(self.seqlen_k)
        causal_offset = self.causal_offset
        start = gl.to_tensor(0)
        if self.PACKED:
            place = to_and_fro(i_turn // 2 if self.PAIRS else i_turn)
            # There is room after the last: all is read at once and then perhaps not used.
            at = tiles + (1 + place) * FIELDS
            i_kv = gl.load(at)
            i_n = gl.load(at + 1 + i_turn % 2) if self.PAIRS else gl.load(at + 1)
            exists = (place < gl.load(tiles)) & (i_n >= 0)
            k_at = gl.load(at + 3)
            own_k = gl.load(at + 4)
            q_at = gl.load(at + 5)
            own_q = gl.maximum(gl.load(at + 6), 0)
            i_b = gl.load(at + 7)
            padded_q = (seqlen_q // self.BLOCK_M + batch) * self.BLOCK_M
            start = ((q_at - own_q) // self.BLOCK_M + i_b) * self.BLOCK_M
            all_rows = heads * padded_q
            causal_offset = causal_offset + own_k - own_q
            seqlen_q = own_q
            seqlen_k = own_k
        else:
            n_n = gl.cdiv(seqlen_k, self.BLOCK_N)
            if self.PAIRS:
                i_last, i_bh, exists = in_pairs(i_turn, n_n, batch * kv_heads, ALONE)
                i_n = n_n - 1 - i_last
            else:
                place = to_and_fro(i_turn)
                n_heads = batch * kv_heads
                exists = place < n_n * n_heads
                i_n = place % n_n
                i_bh = place // n_n
                if self.WINDOW:
                    # So few that neighbours of a head still find its queries in L2.
                    few = n_heads * NEIGHBOURS <= gl.num_programs(0)
                    i_n = gl.where(few, place // n_heads, i_n)
                    i_bh = gl.where(few, place % n_heads, i_bh)
            i_b = i_bh // kv_heads
            i_kv = i_bh % kv_heads
            k_at = i_b
            q_at = i_b
            padded_q = gl.cdiv(seqlen_q, self.BLOCK_M) * self.BLOCK_M
            all_rows = batch * heads * padded_q
        own = Sequence(q_at, k_at, seqlen_q, seqlen_k, causal_offset, causal_offset, self.PACKED)
        n_m = gl.cdiv(seqlen_q, self.BLOCK_M)
        first = gl.to_tensor(0)
        shift = gl.to_tensor(0)
        if self.CAUSAL:
            first = gl.minimum(
                gl.maximum(i_n * self.BLOCK_N - causal_offset, 0) // self.BLOCK_M, n_m
            )
        else:
            n = gl.cdiv(seqlen_k, self.BLOCK_N)
            shift = i_n * n_m // (gl.maximum(n, 1) if self.PACKED else n)
        blocks = n_m - first
        if self.WINDOW:
            end = gl.minimum(gl.maximum((i_n + 1) * self.BLOCK_N - self.left_offset, 0), seqlen_q)
            blocks = gl.maximum(gl.cdiv(end, self.BLOCK_M) - first, 0)
        heads_per_kv = heads // kv_heads
        steps = gl.where(exists, blocks * heads_per_kv, -1)
        return Work(
            own, start, i_b, i_kv, i_n, first, blocks, steps, shift, heads, heads_per_kv, padded_q,
            all_rows, seqlen_k, causal_offset, self.left_offset, self.BLOCK_M, self.BLOCK_N,
            self.HEAD_DIM, self.CAUSAL, self.EVEN, self.WINDOW, self.DTYPE,
        )  # fmt: skip


@gluon.jit
def most(bounds, n):
    """The largest of n bounds, 0 of none, by one warp."""
    o_bound = gl.arange(0, AT_ONCE, gl.BlockedLayout([1], [32], [1], [0]))
    found = o_bound * 0.0
    for first in range(0, n, AT_ONCE):
        one = gl.load(bounds + first + o_bound, mask=first + o_bound < n, other=0.0)
        found = gl.maximum(found, one)
    return gl.max(found, 0)
