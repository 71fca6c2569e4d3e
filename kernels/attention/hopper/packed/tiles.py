"""The tiles of packed sequences, listed on the device: only there their lengths are known.

Programs that each walk many tiles need no turn for what does not exist, and share out the longest
first.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from kernels.attention.common.packed.sequences import begins, behind, bounds
from kernels.attention.common.problem import Problem
from kernels.runtime.launch import noted

from .places import PLACE, list_places

LISTED_AT_ONCE = 256
FIELDS = tl.constexpr(8)  # numbers a unit takes in the list, and the front of the list too


def listed(
    problem: Problem,
    rows: int,
    *,
    pairs: bool,
    by_head: bool,
    programs: int,
    spare: int,
    places: torch.Tensor | None = None,
    place_rows: int = 0,
) -> tuple[torch.Tensor, int]:
    """The list, int32, and how many units it may hold: tiles of ``rows`` query rows of a head or,
    with ``pairs``, two of them, for so many programs. After the last is room for ``spare`` more.
    ``list_tiles`` says in which order. There ``places``, int32 (blocks, 4), is filled if given:
    those of blocks of ``place_rows`` keys, then of ``rows`` queries."""
    packed, tokens, heads = problem.packed, problem.q.shape[1], problem.heads
    assert packed is not None
    batch = packed.cu_q.numel() - 1
    each = 2 if pairs else 1
    most = triton.cdiv(packed.max_q, rows)
    units = heads * min(batch * triton.cdiv(most, each), tokens // (each * rows) + batch)
    size = FIELDS.value * (1 + units + spare)
    tiles = torch.empty(size, dtype=torch.int32, device=packed.cu_q.device)
    chunks = triton.cdiv(heads * triton.cdiv(most, each), LISTED_AT_ONCE)
    noted(list_tiles, (batch, max(1, min(chunks, 64))))(
        packed.queries,
        packed.keys,
        tiles,
        batch,
        heads,
        most,
        units,
        programs,
        ROWS=rows,
        CAUSAL=problem.mask.causal,
        PAIRS=pairs,
        BY_HEAD=by_head,
        BLOCK=LISTED_AT_ONCE,
        places=places,
        place_blocks=0 if places is None else len(places) - (tokens // rows + batch),
        own_blocks=tokens // rows + batch,
        PLACE_ROWS=place_rows,
        num_warps=4,
    )
    return tiles, units


@triton.jit
def tiles_of(n_q, most, ROWS: tl.constexpr):
    """How many tiles of a head sequences of ``n_q`` queries make."""
    return tl.minimum((tl.maximum(n_q, 0) + ROWS - 1) // ROWS, most)


@triton.jit
def units_of(n_q, most, ROWS: tl.constexpr, PAIRS: tl.constexpr):
    """How many units of a head they make."""
    n_m = tiles_of(n_q, most, ROWS)
    return (n_m + 1) // 2 if PAIRS else n_m


@triton.jit
def lengths(cu, i, o_b, in_b):
    """How many rows the sequences from ``i`` on have, 0 where not ``in_b``."""
    b_rows = tl.load(begins(cu) + i + o_b + 1, mask=in_b, other=0)
    b_rows -= tl.load(begins(cu) + i + o_b, mask=in_b, other=0)
    if not isinstance(cu, tl.tensor):
        b_used = tl.load(cu[1] + i + o_b, mask=in_b, other=0)
        b_rows = tl.minimum(b_rows, tl.maximum(b_used, 0))
    return b_rows


@triton.jit(
    do_not_specialize=[
        "batch",
        "heads",
        "most",
        "units",
        "programs",
        "place_blocks",
        "own_blocks",
    ]
)
def list_tiles(
    cu_q,
    cu_k,
    tiles,
    batch,
    heads,
    most,
    units,
    programs,
    ROWS: tl.constexpr,
    CAUSAL: tl.constexpr,
    PAIRS: tl.constexpr,
    BY_HEAD: tl.constexpr,
    BLOCK: tl.constexpr,
    places,
    place_blocks,
    own_blocks,
    PLACE_ROWS: tl.constexpr,
):
    """Programs list the units of their sequence behind those of all that take longer.

    In front stands how many units there are, ``units`` at most. A unit says: its head; which tile
    of it comes first and, in PAIRS, second, or -1; the end and number of the sequence's queries;
    the end and number of its keys; the sequence's own number. A sequence has at most ``most`` tiles
    a head.

    A pair is a long and a short tile of causal attention, so that all of a sequence take alike (of
    full attention two that do). BY_HEAD a head's units stand together, which keeps its keys in L2;
    else those of all heads that see the same keys, which take alike. Those of causal attention
    come longest first in one sequence and shortest first in the next, so that neighbours are about
    alike there too; in a sequence of fewer units than ``programs`` always longest first.

    With ``places`` (hopper/packed/places.py) queries and keys have changed names, and so have
    cu_q and cu_k: tiles are of keys, of which the first are seen by most and stand
    first in a pair.
    """
    OF_KEYS: tl.constexpr = places is not None
    i_b, i_first = tl.program_id(0), tl.program_id(1)
    o_q, n_q = bounds(cu_q, i_b)
    o_k, n_k = bounds(cu_k, i_b)
    work = 2 * n_k - n_q if CAUSAL else n_k
    o_b = tl.arange(0, BLOCK)
    before = tl.zeros([BLOCK], tl.int32)
    total = tl.zeros([BLOCK], tl.int32)
    later = tl.zeros([BLOCK], tl.int32)
    for i in range(0, batch, BLOCK):
        in_b = i + o_b < batch
        b_q = lengths(cu_q, i, o_b, in_b)
        b_k = lengths(cu_k, i, o_b, in_b)
        b_work = 2 * b_k - b_q if CAUSAL else b_k
        b_units = units_of(b_q, most, ROWS, PAIRS)
        first = (b_work > work) | ((b_work == work) & (i + o_b < i_b))
        before += tl.where(first, b_units, 0)
        total += b_units
        many = (b_units * heads >= programs) & (i + o_b != i_b) & ~first
        later += tl.where(many, 1, 0)
    if i_b + i_first == 0:
        tl.store(tiles, tl.minimum(tl.sum(total) * heads, units))
    if OF_KEYS:
        own = o_q // ROWS + i_b
        n_own = (tl.maximum(n_q, 0) + ROWS - 1) // ROWS
        o_next = behind(cu_k, i_b, o_k, n_k)
        list_places(
            places, i_b, i_first, batch, place_blocks, o_k, n_k, o_next, own, n_own,
            PLACE_ROWS, BLOCK,
        )  # fmt: skip
        places += place_blocks * PLACE
        o_next = behind(cu_q, i_b, o_q, n_q)
        list_places(
            places, i_b, i_first, batch, own_blocks, o_q, n_q, o_next, own, n_own, ROWS, BLOCK
        )
    o_unit = tl.sum(before) * heads
    n_m = tiles_of(n_q, most, ROWS)
    n_units = units_of(n_q, most, ROWS, PAIRS)
    SINGLE: tl.constexpr = CAUSAL and not (PAIRS or BY_HEAD or OF_KEYS)
    shortest_first = (n_units * heads >= programs) & (tl.sum(later) % 2 == 1)
    for i in range(i_first * BLOCK, n_units * heads, tl.num_programs(1) * BLOCK):
        i_own = i + o_b
        mask = (i_own < n_units * heads) & (o_unit + i_own < units)
        at = tiles + (1 + o_unit + i_own) * FIELDS
        if BY_HEAD:
            i_h = i_own // n_units
            i_m = i_own % n_units
        else:
            i_h = i_own % heads
            i_m = i_own // heads
        if SINGLE:
            i_m = tl.where(shortest_first, n_m - 1 - i_m, i_m)
        last = n_m - 1 - i_m
        tl.store(at, i_h, mask=mask)
        tl.store(at + 1, last if (CAUSAL or PAIRS) and not OF_KEYS else i_m, mask=mask)
        if PAIRS:
            tl.store(at + 2, tl.where(i_m == last, -1, last if OF_KEYS else i_m), mask=mask)
        tl.store(at + 3, i_own * 0 + o_q + n_q, mask=mask)
        tl.store(at + 4, i_own * 0 + n_q, mask=mask)
        tl.store(at + 5, i_own * 0 + o_k + n_k, mask=mask)
        tl.store(at + 6, i_own * 0 + n_k, mask=mask)
        tl.store(at + 7, i_own * 0 + i_b, mask=mask)


def list_plainly(
    *,
    cu_q: Sequence[int],
    cu_k: Sequence[int],
    heads: int,
    most: int,
    units: int,
    programs: int,
    ROWS: int,
    CAUSAL: bool,
    PAIRS: bool,
    BY_HEAD: bool,
    places: object = None,
    **_: object,
) -> dict[str, list[int]]:
    """What ``list_tiles`` writes, by argument: where launches are only recorded it did not run.
    Nothing where not all rows are used: how many are, a recorder does not know."""
    if isinstance(cu_q, tuple) or isinstance(cu_k, tuple):
        return {}
    sequences = []
    ends = zip(cu_q, cu_q[1:], cu_k, cu_k[1:], strict=False)
    for i_b, (o_q, end_q, o_k, end_k) in enumerate(ends):
        n_q, n_k = end_q - o_q, end_k - o_k
        n_m = min(triton.cdiv(max(n_q, 0), ROWS), most)
        of_one = range(triton.cdiv(n_m, 2) if PAIRS else n_m)
        lasts = [n_m - 1 - i_m for i_m in of_one]
        last_first = (CAUSAL or PAIRS) and places is None
        both = [
            (last if last_first else i_m, -1 if i_m == last else i_m if places is None else last)
            for i_m, last in zip(of_one, lasts, strict=True)
        ]
        if BY_HEAD:
            own = [(i_h, *tiles) for i_h in range(heads) for tiles in both]
        else:
            own = [(i_h, *tiles) for tiles in both for i_h in range(heads)]
        listed = [[*one, end_q, n_q, end_k, n_k, i_b] for one in own]
        sequences.append((2 * n_k - n_q if CAUSAL else n_k, listed))
    sequences.sort(key=lambda one: -one[0])
    if CAUSAL and not (PAIRS or BY_HEAD) and places is None:
        many = [listed for _, listed in sequences if len(listed) >= programs]
        for listed in many[-2::-2]:
            longest = max(one[1] for one in listed)
            listed[:] = [[one[0], longest - one[1], *one[2:]] for one in listed]
    numbers = [number for _, listed in sequences for unit in listed[:units] for number in unit]
    count = min(len(numbers) // FIELDS.value, units)
    return {"tiles": [count, *[0] * (FIELDS.value - 1), *numbers[: count * FIELDS.value]]}


# The recorder of launches asks for it, to count loops whose bounds stand in the list.
list_tiles.plainly = list_plainly
