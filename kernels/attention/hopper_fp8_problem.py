"""What Hopper's fp8 attention computes and in which order: sizes, tiles, blocks of keys (Gluon).

hopper_problem.py knows windows and packed sequences too; these are the plain ones, whose sizes can
be had anew. Aggregates read their annotations when they are built, so nothing here postpones them.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.core import _aggregate as aggregate


@gluon.jit
def anew(x):
    """x, but what follows from it is computed where it stands: kept from tile to tile it would take
    registers that the products need."""
    ASM: gl.constexpr = "mov.b32 $0, $1;"
    return gl.inline_asm_elementwise(ASM, "=r,r", [x], dtype=gl.int32, is_pure=False, pack=1)


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
    PAIRS: gl.constexpr
    SKIP: gl.constexpr

    @gluon.constexpr_function
    def __init__(
        self, heads, heads_per_kv, batch, seqlen_q, seqlen_k, causal_offset,
        CONSUMERS, BLOCK_N, HEAD_DIM, CAUSAL, PAIRS, SKIP,
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
        self.PAIRS = gl.constexpr(PAIRS)
        self.SKIP = gl.constexpr(SKIP)

    @gluon.jit
    def sizes_anew(self):
        return Fp8Problem(
            anew(self.heads), self.heads_per_kv, self.batch, anew(self.seqlen_q),
            anew(self.seqlen_k), anew(self.causal_offset), self.CONSUMERS, self.BLOCK_N,
            self.HEAD_DIM, self.CAUSAL, self.PAIRS, self.SKIP,
        )  # fmt: skip

    @gluon.jit
    def turns(self):
        """How many blocks of rows a program walks at most."""
        n_m = gl.cdiv(self.seqlen_q, self.BLOCK_M)
        n_heads = self.heads * self.batch
        if self.PAIRS:
            return 2 * gl.cdiv((n_m + 1) // 2 * n_heads, gl.num_programs(0))
        else:
            return gl.cdiv(n_m * n_heads, gl.num_programs(0))

    @gluon.jit
    def tile(self, i_turn):
        """Block of rows, head and batch of this program's turn, and whether it exists: full
        attention by whole blocks first, causal by longest first, or by PAIRS of a long and a short
        block of one head. hopper_problem.py tells why."""
        n_m = gl.cdiv(self.seqlen_q, self.BLOCK_M)
        n_heads = self.heads * self.batch
        n_programs = gl.num_programs(0)
        i_program = gl.program_id(0)
        if self.PAIRS:
            n_pairs = (n_m + 1) // 2
            i_pair = (i_turn // 2) * n_programs + i_program
            i_short = i_pair % n_pairs
            i_bh = i_pair // n_pairs
            second = i_turn % 2 == 1
            i_m = gl.where(second, i_short, n_m - 1 - i_short)
            exists = (i_bh < n_heads) & ((i_short * 2 != n_m - 1) | (i_turn % 2 == 0))
        else:
            i_program = gl.where(i_turn % 2 == 0, i_program, n_programs - 1 - i_program)
            i_tile = i_turn * n_programs + i_program
            exists = i_tile < n_m * n_heads
            if self.CAUSAL:
                i_m = n_m - 1 - i_tile // n_heads
                i_bh = i_tile % n_heads
            else:
                n_whole = self.seqlen_q // self.BLOCK_M
                is_last = i_tile >= n_whole * n_heads
                per_head = gl.maximum(n_whole, 1)
                i_m = gl.where(is_last, n_whole, i_tile % per_head)
                i_bh = gl.where(is_last, i_tile - n_whole * n_heads, i_tile // per_head)
        return i_m, i_bh % self.heads, i_bh // self.heads, exists

    @gluon.jit
    def blocks(self, row, N_ROWS: gl.constexpr):
        """Blocks of keys that rows [row, row + N_ROWS) need, at least one; and how many of them
        every row sees in full. Rows past the end need one, which keeps the pipeline in step."""
        end = self.seqlen_k
        whole = self.seqlen_k
        if self.CAUSAL:
            end = min(end, min(row + N_ROWS, self.seqlen_q) + self.causal_offset)
            whole = max(0, min(whole, row + self.causal_offset + 1))
        end = gl.where(row < self.seqlen_q, end, 1)
        return max(1, (end + self.BLOCK_N - 1) // self.BLOCK_N), whole // self.BLOCK_N
