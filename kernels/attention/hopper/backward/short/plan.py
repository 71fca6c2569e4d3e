"""Which tiles a program of Hopper's backward pass of short sequences has (Gluon).

Aggregates read their annotations when they are built, so nothing here postpones them.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma

from kernels.attention.hopper.backward.block import keys, keys_before
from kernels.attention.hopper.tile_order import anew
from kernels.device.aggregates import aggregate, computed
from kernels.device.hopper_rings import ROWS


@aggregate
class Tile:
    """128 keys, the i-th of a head, and the ``blocks`` of 64 queries that see them, from ``first``
    on, in each of the heads from ``i_h`` on; or 128 queries and the blocks of keys they see."""

    i_b: gl.tensor
    i_h: gl.tensor
    i_kv: gl.tensor
    i: gl.tensor
    first: gl.tensor
    blocks: gl.tensor


@aggregate
class Plan:
    """All tiles of a launch, and the order in which programs take them."""

    heads: gl.tensor
    kv_heads: gl.tensor
    batch: gl.tensor
    seqlen_q: gl.tensor
    seqlen_k: gl.tensor
    causal_offset: gl.tensor
    left_offset: gl.tensor
    HEAD_DIM: gl.constexpr
    CAUSAL: gl.constexpr
    WINDOW: gl.constexpr
    BY_HEAD: gl.constexpr
    OF_KEYS: gl.constexpr
    BLOCK_N: gl.constexpr = computed("64")
    DTYPE: gl.constexpr

    @gluon.jit
    def sizes_anew(self):
        """The same plan; a partition that asks makes its numbers of blocks and tiles itself."""
        return Plan(
            anew(self.heads), anew(self.kv_heads), anew(self.batch), anew(self.seqlen_q),
            anew(self.seqlen_k), anew(self.causal_offset),
            anew(self.left_offset) if self.WINDOW else self.left_offset, self.HEAD_DIM, self.CAUSAL,
            self.WINDOW, self.BY_HEAD, self.OF_KEYS, self.DTYPE,
        )  # fmt: skip

    @gluon.jit
    def of_a_head(self):
        """Tiles of one head."""
        return gl.cdiv(self.seqlen_k if self.OF_KEYS else self.seqlen_q, 2 * ROWS)

    @gluon.jit
    def all_heads(self):
        return self.batch * (self.kv_heads if self.OF_KEYS else self.heads)

    @gluon.jit
    def place(self, i_turn):
        """Of a program's next tile in the order of all: every other turn goes backwards, so that
        nobody gets the longest of each."""
        i = gl.program_id(0)
        n = gl.num_programs(0)
        return i_turn * n + gl.where(i_turn % 2 == 1, n - 1 - i, i)

    @gluon.jit
    def exists(self, i_turn):
        return self.place(i_turn) < self.of_a_head() * self.all_heads()

    @gluon.jit
    def turns(self):
        """How many tiles the program has at most: one more than it has at least."""
        return gl.cdiv(self.of_a_head() * self.all_heads(), gl.num_programs(0))

    @gluon.jit
    def steps(self, I_CONSUMER: gl.constexpr):
        """How many blocks a consumer walks in all tiles of the program."""
        n = gl.to_tensor(0)
        if self.CAUSAL:
            for i_turn in range(self.turns()):
                blocks = self.own_blocks((self.tile(i_turn).i * 2 + I_CONSUMER) * ROWS)
                n += gl.where(self.exists(i_turn), blocks, 0)
        else:
            tiles = self.turns() - gl.where(self.exists(self.turns() - 1), 0, 1)
            n += tiles * self.own_blocks(I_CONSUMER * ROWS)
        return n

    @gluon.jit
    def own_blocks(self, row):
        """Of 64 keys or queries from ``row`` on, as ``Tile.blocks``, of all heads together."""
        if self.OF_KEYS:
            _, n = self.queries(row)
            return n * (self.heads // self.kv_heads)
        else:
            return keys(self, row) - keys_before(self, row)

    @gluon.jit
    def tile(self, i_turn):
        """The tiles of a head follow each other, or, if not BY_HEAD, those with most work, of all
        heads."""
        n = self.of_a_head()
        place = self.place(i_turn)
        if self.BY_HEAD:
            i = place % n
            i_bh = place // n
        else:
            i = place // self.all_heads()
            i_bh = place % self.all_heads()
        group = self.heads // self.kv_heads
        if self.OF_KEYS:
            i_kv = i_bh % self.kv_heads
            first, blocks = self.queries(i * 2 * ROWS)
            if self.WINDOW:
                blocks = self.end((i * 2 + 1) * ROWS) - first
            return Tile(i_bh // self.kv_heads, i_kv * group, i_kv, i, first, blocks)
        else:
            i = n - 1 - i
            i_h = i_bh % self.heads
            first = keys_before(self, i * 2 * ROWS)
            blocks = keys(self, (i * 2 + 1) * ROWS) - first
            return Tile(i_bh // self.heads, i_h, i_h // group, i, first, blocks)

    @gluon.jit
    def queries(self, key):
        """The first block of queries that sees the 64 keys from ``key`` on, and how many do; one at
        least."""
        n = gl.cdiv(self.seqlen_q, ROWS)
        first = key * 0
        if self.CAUSAL:
            first = gl.minimum(gl.maximum(key - self.causal_offset, 0) // ROWS, n - 1)
        if self.WINDOW:
            n = self.end(key)
        return first, n - first

    @gluon.jit
    def end(self, key):
        """Behind the last block of queries in whose windows the 64 keys from ``key`` on are."""
        seen = gl.cdiv(gl.maximum(key + ROWS - self.left_offset, 1), ROWS)
        return gl.minimum(gl.cdiv(self.seqlen_q, ROWS), seen)

    @gluon.jit
    def padded_q(self):
        """Rows that a head has in workspaces."""
        return gl.cdiv(self.seqlen_q, ROWS) * ROWS

    @gluon.jit
    def row(self, tile, i_h, i_m):
        """Where a block of rows lies in workspaces."""
        return (tile.i_b * self.heads + i_h) * self.padded_q() + i_m * ROWS


@gluon.jit
def copy_tile(x, at_x, ready, to, stage, plan):
    """Start to bring the 128 rows that are tile i of a head, ``at_x`` its entry, head and i."""
    mbarrier.expect(ready, 2 * ROWS * plan.HEAD_DIM * 2)
    i_b, i_h, i = at_x
    for j in gl.static_range(2):
        at = [i_b, i_h, (i * 2 + j) * ROWS, 0]
        tma.async_copy_global_to_shared(x, at, ready, to.index(stage * 2 + j))


@gluon.jit
def matrix(memory, stage):
    """64 rows of shared memory, (stages, 1, 1, 64, HEAD_DIM)."""
    return memory.index(stage).reshape([memory.shape[3], memory.shape[4]])


@gluon.jit
def scores(left, right, LAYOUT: gl.constexpr):
    """Start left @ right^T of 64 rows each."""
    nothing = gl.zeros([ROWS, ROWS], gl.float32, LAYOUT)
    return warpgroup_mma(left, right.permute((1, 0)), nothing, use_acc=False, is_async=True)
