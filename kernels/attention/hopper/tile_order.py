"""In which order programs walk blocks of rows, and which keys those need, in Hopper's attention.

hopper/problem.py tells why (``walked``). tests/hopper/test_hopper_tiles.py runs these as Python.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

# Arguments of Hopper's attention kernels that change from call to call: of whichever of them a
# kernel has, one compiled code serves all values.
SIZES = [
    "heads",
    "heads_per_kv",
    "kv_heads",
    "batch",
    "seqlen_q",
    "seqlen_k",
    "tokens",
    "causal_offset",
    "left_offset",
    "heads_together",
    "whole_each",
    "whole_more",
    "tail",
    "n_blocks",
    "n_all",
]


@gluon.jit
def anew(x):
    """x, of which the compiler does not know that it is always the same: what follows from it is
    computed where it stands. Kept from tile to tile it would take registers for the whole launch,
    which the products need."""
    ASM: gl.constexpr = "mov.b32 $0, $1;"
    return gl.inline_asm_elementwise(ASM, "=r,r", [x], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def to_and_fro(i_turn):
    """This program's place in a round of all programs, every other round backwards."""
    n_programs = gl.num_programs(0)
    i_program = gl.program_id(0)
    i_program = gl.where(i_turn % 2 == 0, i_program, n_programs - 1 - i_program)
    return i_turn * n_programs + i_program


@gluon.jit
def in_pairs(i_turn, n_m, n_heads):
    """Block of rows and head of this program's turn, and whether it exists: a long and a short
    block of one head follow each other."""
    n_pairs = (n_m + 1) // 2
    i_pair = (i_turn // 2) * gl.num_programs(0) + gl.program_id(0)
    i_short = i_pair % n_pairs
    i_bh = i_pair // n_pairs
    second = i_turn % 2 == 1
    i_m = gl.where(second, i_short, n_m - 1 - i_short)
    exists = (i_bh < n_heads) & ((i_short * 2 != n_m - 1) | (i_turn % 2 == 0))
    return i_m, i_bh, exists


@gluon.jit
def whole_first(i_tile, n_whole, n_heads):
    """Block of rows and head of a tile: the ``n_whole`` whole blocks of each head, then each
    head's last, of fewer rows."""
    is_last = i_tile >= n_whole * n_heads
    per_head = gl.maximum(n_whole, 1)
    i_m = gl.where(is_last, n_whole, i_tile % per_head)
    i_bh = gl.where(is_last, i_tile - n_whole * n_heads, i_tile // per_head)
    return i_m, i_bh


@gluon.jit
def rounds(n_m, n_heads, PAIRS: gl.constexpr):
    """How many of ``n_m`` blocks of rows of each head a program walks at most."""
    if PAIRS:
        return 2 * gl.cdiv((n_m + 1) // 2 * n_heads, gl.num_programs(0))
    else:
        return gl.cdiv(n_m * n_heads, gl.num_programs(0))


@gluon.jit
def seen_blocks(
    row, seqlen_q, seqlen_k, causal_offset,
    N_ROWS: gl.constexpr, BLOCK_N: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    """Blocks of keys that rows [row, row + N_ROWS) need, at least one; and how many of them every
    row sees in full. Rows past the end need one, which keeps the pipeline in step."""
    end = seqlen_k
    whole = seqlen_k
    if CAUSAL:
        end = min(end, min(row + N_ROWS, seqlen_q) + causal_offset)
        whole = max(0, min(whole, row + causal_offset + 1))
    end = gl.where(row < seqlen_q, end, 1)
    return max(1, (end + BLOCK_N - 1) // BLOCK_N), whole // BLOCK_N
