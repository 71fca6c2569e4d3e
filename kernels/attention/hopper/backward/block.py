"""What a program of Hopper's backward pass works on: its block, and the rows that see it (Gluon).

Aggregates read their annotations when they are built, so nothing here postpones them.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import warpgroup_mma

from kernels.attention.hopper.problem import Sequence
from kernels.device.aggregates import aggregate
from kernels.device.hopper_rings import ROWS


@gluon.jit
def in_order(n_blocks, batch, heads, heads_together, LAST_FIRST: gl.constexpr):
    """This program's block, and its head of those of the whole batch: the first blocks, or the
    last, of as many heads as L2 holds come first. Where causal they walk most."""
    i_chunk = gl.program_id(0) // (heads_together * n_blocks)
    i_in = gl.program_id(0) % (heads_together * n_blocks)
    width = gl.minimum(heads_together, batch * heads - i_chunk * heads_together)
    i_block = i_in // width
    if LAST_FIRST:
        i_block = n_blocks - 1 - i_block
    return i_block, i_chunk * heads_together + i_in % width


@gluon.jit
def keys(work, row):
    """Blocks of keys up to the last that the 64 rows from ``row`` on see; one at least."""
    n = gl.cdiv(work.seqlen_k, work.BLOCK_N) + row * 0
    if work.CAUSAL:
        last = row + (ROWS - 1) + work.causal_offset
        n = gl.minimum(n, gl.maximum(last, 0) // work.BLOCK_N + 1)
    return n


@gluon.jit
def keys_before(work, row):
    """Blocks of keys ahead of the first that the 64 rows from ``row`` on see."""
    n = row * 0
    if work.WINDOW:
        first = gl.maximum(row + work.left_offset, 0) // work.BLOCK_N
        n = gl.minimum(first, keys(work, row) - 1)
    return n


@aggregate
class Work:
    """A program's block of keys, and the queries that see it: ``steps`` blocks of BLOCK_M rows of
    each of ``heads_per_kv`` heads.

    Of packed sequences a head's rows in workspaces are those of all of them, each from ``start``
    on: no two share a block. Then ``row`` does not use i_b.
    """

    own: Sequence
    start: gl.tensor
    i_b: gl.tensor
    i_kv: gl.tensor
    i_n: gl.tensor
    first: gl.tensor
    blocks: gl.tensor
    steps: gl.tensor
    shift: gl.tensor
    heads: gl.tensor
    heads_per_kv: gl.tensor
    padded_q: gl.tensor
    all_rows: gl.tensor
    seqlen_k: gl.tensor
    causal_offset: gl.tensor
    left_offset: gl.tensor
    BLOCK_M: gl.constexpr
    BLOCK_N: gl.constexpr
    HEAD_DIM: gl.constexpr
    CAUSAL: gl.constexpr
    EVEN: gl.constexpr
    WINDOW: gl.constexpr
    DTYPE: gl.constexpr

    @gluon.jit
    def next(self, i_h, i_m):
        """The head and block of rows behind these. Programs of one head start at different rows,
        so that they do not all add to the same ones at once."""
        i_m = i_m + 1
        i_m = gl.where(i_m == self.blocks, 0, i_m)
        return gl.where(i_m == self.shift, i_h + 1, i_h), i_m

    @gluon.jit
    def row(self, i_h, i_m):
        """Where a block of rows lies in workspaces."""
        if self.own.PACKED:
            return i_h * self.padded_q + self.start + (self.first + i_m) * self.BLOCK_M
        else:
            return (self.i_b * self.heads + i_h) * self.padded_q + (self.first + i_m) * self.BLOCK_M


@gluon.jit
def mask(
    s, after, until, keys, zero, CAUSAL: gl.constexpr, WINDOW: gl.constexpr, FIRST: gl.constexpr = 0
):  # fmt: skip
    """Scores that are not seen become -inf; keys are rows, from FIRST on, queries columns. There
    are ``keys`` keys. With CAUSAL the i-th is seen from column i + ``after`` on, in a WINDOW up to
    column i + ``until``."""
    o_n = FIRST + gl.arange(0, s.shape[0], gl.SliceLayout(1, s.type.layout))
    o_m = gl.arange(0, s.shape[1], gl.SliceLayout(0, s.type.layout))
    first_seeing = o_n + after if CAUSAL else o_n * 0 + zero
    first_seeing = gl.where(o_n < keys, first_seeing, s.shape[1])
    # A column is what its lane adds (bits 1 and 2) and a constant, which becomes part of an
    # instruction when it stays alone; 16 sums would each take a register.
    constant = (o_m & ~6)[None, :]
    seen = constant >= first_seeing[:, None] - (o_m & 6)[None, :]
    if WINDOW:
        last_seeing = o_n + until
        seen = seen & (constant <= last_seeing[:, None] - (o_m & 6)[None, :])
    return gl.where(seen, s, float("-inf"))


@gluon.jit
def scores(left, ring, at, work, N: gl.constexpr, LAYOUT: gl.constexpr):
    """Start left @ (the N rows in the ring)^T, of 64 rows."""
    ring.wait(at)
    right = ring.memory.index(at.stage).reshape([N, work.HEAD_DIM])
    nothing = gl.zeros([ROWS, N], gl.float32, LAYOUT)
    tile = left.reshape([ROWS, work.HEAD_DIM])
    return warpgroup_mma(tile, right.permute((1, 0)), nothing, use_acc=False, is_async=True)
