"""In which order programs walk blocks of rows, and which keys those need, in Hopper's attention.

The docstrings below say why. tests/hopper/test_hopper_tiles.py runs these as Python.
"""

import math

import triton
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
# Blocks a program has in the end that are in no pair. Fewer would be shared out less alike. More
# would be of more heads than L2 holds.
ALONE = gl.constexpr(2)
# Blocks of a group's heads that each program has, within a factor of 1.4. Fewer are not shared out
# alike. Of more heads L2 does not hold the keys and values.
TURNS = 2.5


def heads_together(n_heads: int, n_m: int, programs: int, sharing: int = 1) -> int:
    """How many of ``n_heads`` of ``n_m`` blocks each make a group of ``in_groups``. ``sharing``
    times as many do where L2 holds the keys of so many more. Heads are mostly divided by a power of
    2: then all groups are alike."""
    groups = n_heads * n_m / (TURNS * sharing * programs)
    return triton.cdiv(n_heads, 2 ** round(math.log2(max(groups, 1.0))))


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
def paired(n_m, n_heads, ALONE: gl.constexpr):
    """How many pairs of blocks of rows the first heads have, and how many heads have none: as many
    blocks as ``ALONE`` of every program."""
    n_alone = gl.minimum(n_heads, gl.cdiv(ALONE * gl.num_programs(0), n_m))
    return (n_m + 1) // 2 * (n_heads - n_alone), n_alone


@gluon.jit
def in_pairs(i_turn, n_m, n_heads, ALONE: gl.constexpr):
    """Block of rows and head of this program's turn, and whether it exists: a long and a short
    block of one head follow each other, and then the blocks of some heads, longest first.

    Pairs of all heads would leave most programs idle while others walk a last one. A program
    without one has a long block in its place. Shorter ones follow, every other turn backwards.
    Where ALONE is 0 there are pairs only.
    """
    n_programs = gl.num_programs(0)
    if ALONE > 0:
        n_m, n_heads = anew(n_m), anew(n_heads)
    per_head = (n_m + 1) // 2
    i_pair = (i_turn // 2) * n_programs + gl.program_id(0)
    i_short = i_pair % per_head
    i_m = gl.where(i_turn % 2 == 1, i_short, n_m - 1 - i_short)
    i_bh = i_pair // per_head
    exists = (i_bh < n_heads) & ((i_short * 2 != n_m - 1) | (i_turn % 2 == 0))
    if ALONE > 0:
        n_pairs, n_alone = paired(n_m, n_heads, ALONE)
        n_turns = n_pairs // n_programs * 2
        i_alone = to_and_fro(gl.maximum(i_turn - n_turns - 1, 0)) - n_pairs % n_programs
        is_alone = i_pair >= n_pairs
        i_m = gl.where(is_alone, n_m - 1 - i_alone // n_alone, i_m)
        i_bh = gl.where(is_alone, n_heads - n_alone + i_alone % n_alone, i_bh)
        is_there = (i_alone < n_alone * n_m) & (i_turn != n_turns + 1)
        exists = gl.where(is_alone, is_there, exists)
    return i_m, i_bh, exists


@gluon.jit
def in_groups(i_tile, n_m, n_heads, heads_together):
    """Block of rows and head of a tile, and whether it exists: groups of heads follow each other,
    of ``heads_together`` but for the first, which may have fewer. In the last group the blocks of
    all heads come longest first, in the one before shortest first, and so on.

    Neighbours take about as long everywhere, so programs that walk them to and fro have equal
    work. Those that are at work at a time share the keys of few heads.
    """
    n_m, n_heads, heads_together = anew(n_m), anew(n_heads), anew(heads_together)
    i_left = n_m * n_heads - 1 - i_tile
    i_group = i_left // (n_m * heads_together)
    i_first = i_group * heads_together
    i_left_here = i_left - i_first * n_m
    width = gl.minimum(n_heads - i_first, heads_together)
    i_short = i_left_here // width
    i_m = gl.where(i_group % 2 == 0, i_short, n_m - 1 - i_short)
    i_bh = n_heads - 1 - i_first - (i_left_here - i_short * width)
    return i_m, i_bh, i_left >= 0


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
def rounds(n_m, n_heads, PAIRS: gl.constexpr, ALONE: gl.constexpr = 0):
    """How many of ``n_m`` blocks of rows of each head a program walks at most."""
    n_programs = gl.num_programs(0)
    if PAIRS and ALONE > 0:
        n_pairs, n_alone = paired(n_m, n_heads, ALONE)
        rest = n_pairs % n_programs + n_alone * n_m
        return n_pairs // n_programs * 2 + 1 + gl.cdiv(rest, n_programs)
    elif PAIRS:
        return 2 * gl.cdiv((n_m + 1) // 2 * n_heads, n_programs)
    else:
        return gl.cdiv(n_m * n_heads, n_programs)


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
