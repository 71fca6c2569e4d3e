"""The order of the tiles in Hopper's attention, by the kernel's own functions run as Python."""

from __future__ import annotations

import random
from itertools import chain, product
from types import SimpleNamespace

import pytest

from kernels.attention.hopper import problem as hopper_problem
from kernels.attention.hopper import tile_order
from kernels.attention.hopper.forward import tail_cut

Tile = tuple[int, int, int, int]


def walked(
    monkeypatch: pytest.MonkeyPatch,
    seqlen: int,
    heads: int,
    batch: int,
    programs: int,
    last_alone: bool,
    **kind: int,
) -> list[list[Tile]]:
    """First row, head, entry of the batch and end of the tiles of each program."""
    now = SimpleNamespace(program=0)
    language = SimpleNamespace(
        cdiv=lambda a, b: -(-a // b),
        where=lambda condition, yes, no: yes if condition else no,
        maximum=max,
        minimum=min,
        num_programs=lambda axis: programs,
        program_id=lambda axis: now.program[axis],
        constexpr=hopper_problem.gl.constexpr,
    )
    for one in (tile_order, hopper_problem):
        monkeypatch.setattr(one, "gl", language)
    for name in ("in_groups", "in_pairs", "rounds", "to_and_fro", "whole_first"):
        monkeypatch.setattr(hopper_problem, name, getattr(tile_order, name).fn)
    for name in ("paired", "to_and_fro"):
        monkeypatch.setattr(tile_order, name, getattr(tile_order, name).fn)
    monkeypatch.setattr(hopper_problem, "ALONE", tile_order.ALONE.value)
    monkeypatch.setattr(tile_order, "anew", lambda x: x)
    monkeypatch.setattr(hopper_problem, "Sequence", lambda *fields: fields)
    problem = SimpleNamespace(seqlen_q=seqlen, heads=heads, batch=batch, **kind)
    problem.seqlen_k = problem.causal_offset = problem.left_offset = 0
    problem.PACKED, problem.WINDOW, problem.TURNED = False, False, False
    problem.LAST_ALONE = last_alone
    n_m = -(-seqlen // kind["BLOCK_M"])
    problem.heads_together = tile_order.heads_together(heads * batch, n_m, programs)
    for name in ("tails", "turns", "walked"):
        setattr(problem, name, getattr(hopper_problem.Problem, name).fn.__get__(problem))
    tiles: list[list[Tile]] = []
    if kind.get("ONCE"):
        places = product(range(n_m), range(heads), range(batch))
    else:
        places = ((i, 0, 0) for i in range(programs))
    for now.program in places:
        tiles.append([])
        for i_turn in range(problem.turns(None)):
            row, i_h, (i_b, _, end, *_), exists, _ = problem.walked(i_turn)
            if exists:
                tiles[-1].append((row, i_h, i_b, end))
    return tiles


@pytest.mark.parametrize(
    ("seqlen", "heads", "batch"),
    [
        (2048, 8, 4),
        (3000, 8, 4),
        (4096, 8, 4),
        (4096, 64, 2),
        (2100, 7, 1),
        (2049, 1, 1),
        (1, 3, 2),
        # Groups that do not divide the heads.
        (4096, 9, 5),
    ],
)
@pytest.mark.parametrize(
    "order",
    ["full", "tails", "tails-of-two", "causal", "of-one", "pairs", "pairs-last-apart", "once"],
)
def test_every_row_of_every_head_is_in_one_tile(
    order: str, seqlen: int, heads: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_two, pairs = ("pairs", "pairs-last-apart", "tails-of-two", "once"), order.startswith("pairs")
    consumers = 2 if order in of_two else 1 if order == "of-one" else 3
    rows = 64 * consumers
    programs = min(132, -(-seqlen // rows) * heads * batch)
    cut = tail_cut.cut(seqlen, heads * batch, consumers, programs)
    kind = dict(zip(("whole_each", "whole_more", "tail"), cut, strict=True))
    kind |= {"CONSUMERS": consumers, "BLOCK_M": rows, "TAILS": order.startswith("tails")}
    kind |= {"CAUSAL": order in ("causal", "of-one") or pairs}
    kind |= {"PAIRS": pairs, "ONCE": order == "once"}
    seen = dict.fromkeys(((b, h, r) for b in range(batch) for h in range(heads)
                          for r in range(0, seqlen, 64)), 0)  # fmt: skip
    apart = order == "pairs-last-apart"
    tiles = walked(monkeypatch, seqlen, heads, batch, programs, apart, **kind)
    for row, i_h, i_b, end in chain(*tiles):
        for of_one in range(row, min(row + rows, end), 64):
            seen[i_b, i_h, of_one] += 1
    assert set(seen.values()) == {1}


@pytest.mark.parametrize(
    ("seqlen", "heads", "of_mean"),
    [(2048, 128, 1.02), (4096, 32, 1.02), (4096, 64, 1.01), (8192, 32, 1.01), (16384, 16, 1.02)],
)
def test_programs_of_causal_pairs_end_together(
    seqlen: int, heads: int, of_mean: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """16 turns of whole pairs would take 1.03 times the mean."""
    cut = dict.fromkeys(("whole_each", "whole_more", "tail"), 0)
    kind = {"CONSUMERS": 2, "BLOCK_M": 128, "CAUSAL": True, "PAIRS": True}
    kind |= {"TAILS": False, "ONCE": False} | cut
    tiles = walked(monkeypatch, seqlen, heads, 1, 132, True, **kind)
    keys = [sum(row + 128 for row, *_ in of_one) for of_one in tiles]
    assert max(keys) <= of_mean * sum(keys) / len(keys)


@pytest.mark.parametrize(
    ("seqlen", "heads", "batch", "consumers", "of_mean"),
    [
        (2048, 16, 8, 2, 1.04),
        (4096, 16, 4, 2, 1.01),
        (8192, 32, 1, 2, 1.01),
        (16384, 16, 1, 2, 1.01),
        (3000, 12, 3, 2, 1.07),
        (2048, 32, 8, 3, 1.03),
        (8192, 32, 2, 3, 1.02),
        # Entry by entry, each longest first, programs would have 1.7 and 1.9 times the mean.
        (3072, 8, 8, 3, 1.04),
        (2560, 8, 2, 3, 1.04),
    ],
)
def test_programs_of_groups_of_heads_end_together(
    seqlen: int,
    heads: int,
    batch: int,
    consumers: int,
    of_mean: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cut = dict.fromkeys(("whole_each", "whole_more", "tail"), 0)
    rows = 64 * consumers
    kind = {"CONSUMERS": consumers, "BLOCK_M": rows, "CAUSAL": True, "TAILS": False, "ONCE": False}
    kind |= {"PAIRS": False}
    tiles = walked(monkeypatch, seqlen, heads, batch, 132, False, **kind | cut)
    keys = [sum(-(-min(row + rows, seqlen) // 128) for row, *_ in of_one) for of_one in tiles]
    assert max(keys) <= of_mean * sum(keys) / len(keys)


@pytest.mark.parametrize(
    ("n_heads", "n_m", "sharing", "together"),
    [(64, 32, 1, 8), (64, 32, 4, 32), (64, 32, 9, 64), (45, 32, 1, 12), (3, 1, 1, 3), (7, 0, 1, 7)],
)
def test_more_heads_make_a_group_where_they_share_keys(
    n_heads: int, n_m: int, sharing: int, together: int
) -> None:
    assert tile_order.heads_together(n_heads, n_m, 132, sharing) == together


@pytest.mark.parametrize(
    ("seqlen", "n_heads", "whole", "tail"), [(2048, 32, 264, 2), (4096, 32, 660, 1)]
)
def test_what_would_wait_for_a_few_whole_blocks_is_cut_smaller(
    seqlen: int, n_heads: int, whole: int, tail: int
) -> None:
    each, more, found = tail_cut.cut(seqlen, n_heads, 3, 132)
    assert (each * n_heads + more, found) == (whole, tail)


@pytest.mark.parametrize(
    ("seqlen", "n_heads", "three"),
    [(512, 1024, False), (768, 64, True), (1024, 32, False), (1024, 512, True), (2048, 32, True)],
)
def test_two_or_three_warpgroups_by_the_time_the_last_program_takes(
    seqlen: int, n_heads: int, three: bool
) -> None:
    assert tail_cut.three_are_faster(seqlen, n_heads, 132) is three


def walked_through(
    each: int, more: int, tail: int, seqlen: int, n_heads: int, consumers: int, programs: int
) -> int:
    """As ``hopper_cut._longest``, block by block."""
    units = -(-seqlen // 64)
    times = [100] * (each * n_heads + more)
    for i_head in range(n_heads):
        behind = units - consumers * (each + (i_head < more))
        times += [tail_cut.SHARES[min(tail, rows) - 1] for rows in range(behind, 0, -tail)]
    busy = [0] * programs
    for i, time in enumerate(times):
        i_turn, i_program = divmod(i, programs)
        busy[-1 - i_program if i_turn % 2 else i_program] += time
    return max(busy)


def test_the_last_program_takes_what_all_blocks_given_out_one_by_one_say() -> None:
    draw = random.Random(0)
    for _ in range(300):
        seqlen, programs = draw.randint(1, 6000), draw.choice((132, 114, 78, 7))
        n_heads = draw.choice((draw.randint(1, 300), draw.randint(1, 2000)))
        consumers = draw.choice((2, 3))
        most = -(-seqlen // 64) // consumers
        whole, tail = draw.randint(0, most * n_heads), draw.randint(1, consumers)
        given = (*divmod(whole, n_heads), tail, seqlen, n_heads, consumers, programs)
        assert tail_cut._longest(*given) == walked_through(*given), given


def test_heads_without_number_are_cut_as_fast_as_few(monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one, count = tail_cut._given, 0

    def counting(busy: list[int], given: int, times: list[int]) -> list[int]:
        nonlocal count
        count += len(times)
        return one_by_one(busy, given, times)

    monkeypatch.setattr(tail_cut, "_given", counting)
    for n_heads in (2_048, 70_000, 1_000_003):
        count = 0
        tail_cut.three_are_faster(777, n_heads, 132)
        assert 0 < count < 10_000  # blocks that are given out one by one


def test_blocks_stay_whole_where_they_come_out_even() -> None:
    assert tail_cut.cut(192 * 132, 1, 3, 132) == (132, 0, 3)
    assert tail_cut.cut(16384, 32, 3, 132) == (85, 0, 3)
