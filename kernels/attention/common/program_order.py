"""In which order programs take the blocks of all heads."""

from __future__ import annotations

import triton
import triton.language as tl

# Heads whose blocks are taken side by side. Head after head, the longest block of the last one
# begins last and ends alone; all heads side by side, their keys leave L2.
MOST_TOGETHER = 8


def together(heads: int) -> int:
    """The largest divisor of ``heads``, those of the whole batch, up to ``MOST_TOGETHER``."""
    return next(n for n in range(MOST_TOGETHER, 0, -1) if heads % n == 0)


@triton.jit
def taken(i_program, n_blocks, TOGETHER: tl.constexpr):
    """Block and head of a program. The blocks of TOGETHER heads, which divides all, take turns;
    with 0 or 1 head follows head."""
    if TOGETHER <= 1:
        return i_program % n_blocks, i_program // n_blocks
    else:
        i_group = i_program // (n_blocks * TOGETHER)
        i_own = i_program % (n_blocks * TOGETHER)
        return i_own // TOGETHER, i_group * TOGETHER + i_own % TOGETHER


# Rounds of all programs begin so far apart that none has only early, or late, rows of causal heads.
APART = tl.constexpr(7919)


@triton.jit
def block_of(first, turn, n_programs):
    """This program's block of rows in the ``turn``-th round of all programs from ``first`` on."""
    i_own = (tl.program_id(0) + (first // n_programs + turn) * APART) % n_programs
    return first + turn * n_programs + i_own
