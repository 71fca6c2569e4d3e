"""Where Hopper's backward pass keeps what it needs of packed sequences (plain Triton).

A head's rows in workspaces are those of all sequences, in blocks of ROWS that no two share:
sequence i begins with block ``cu[i] // ROWS + i``, and of N tokens and B sequences N // ROWS + B
blocks are enough. Bounds of keys stand likewise, one a block.
"""

import triton
import triton.language as tl

PLACE = tl.constexpr(4)  # numbers that are told of a block


@triton.jit
def list_places(
    places, i_b, i_first, batch, n_blocks, o_row, n_rows, o_next, first_bound, n_bounds,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Tell of the blocks of sequence ``i_b``, and of those up to the next one's, which begins with
    row ``o_next``, which one of them is rows of: the first row in the packed tensor and how many
    there are; and where the bounds of the sequence's keys begin and how many these are."""
    own = o_row // ROWS + i_b
    end = tl.where(i_b == batch - 1, n_blocks, o_next // ROWS + i_b + 1)
    begin = tl.where(i_b == 0, 0, own)
    o_b = tl.arange(0, BLOCK)
    for i in range(begin + i_first * BLOCK, end, tl.num_programs(1) * BLOCK):
        mask = i + o_b < end
        row = (i + o_b - own) * ROWS
        count = tl.where(row < 0, 0, tl.maximum(tl.minimum(n_rows - row, ROWS), 0))
        at = places + (i + o_b) * PLACE
        tl.store(at, o_row + row, mask=mask)
        tl.store(at + 1, count, mask=mask)
        tl.store(at + 2, o_b * 0 + first_bound, mask=mask)
        tl.store(at + 3, o_b * 0 + n_bounds, mask=mask)


@triton.jit
def place(places, i_block):
    """The first row of a block, and how many it has."""
    at = places + i_block * PLACE
    return tl.load(at), tl.load(at + 1)
