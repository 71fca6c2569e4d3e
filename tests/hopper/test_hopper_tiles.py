"""The order of the tiles in Hopper's attention, by the kernel's own functions run as Python."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kernels.attention import hopper_cut, hopper_problem

Tile = tuple[int, int, tuple[int, ...], bool]


def walked(
    monkeypatch: pytest.MonkeyPatch, seqlen: int, heads: int, batch: int, programs: int, **kind: int
) -> list[list[Tile]]:
    """What ``Problem.walked`` gives each program, turn by turn."""
    now = SimpleNamespace(program=0)
    language = SimpleNamespace(
        cdiv=lambda a, b: -(-a // b),
        where=lambda condition, yes, no: yes if condition else no,
        maximum=max,
        minimum=min,
        num_programs=lambda axis: programs,
        program_id=lambda axis: now.program,
        constexpr=hopper_problem.gl.constexpr,
    )
    monkeypatch.setattr(hopper_problem, "gl", language)
    monkeypatch.setattr(hopper_problem, "Sequence", lambda *fields: fields)
    problem = SimpleNamespace(seqlen_q=seqlen, heads=heads, batch=batch, **kind)
    problem.seqlen_k = problem.causal_offset = problem.left_offset = 0
    problem.PACKED = problem.WINDOW = False
    for name in ("tails", "turns", "walked"):
        function = getattr(hopper_problem.Problem, name).fn
        setattr(problem, name, function.__get__(problem))
    tiles = []
    for now.program in range(programs):
        turns = range(problem.turns(None))
        tiles.append([problem.walked(i_turn) for i_turn in turns])
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
    ],
)
@pytest.mark.parametrize("order", ["full", "tails", "causal", "pairs"])
def test_every_row_of_every_head_is_in_one_tile(
    order: str, seqlen: int, heads: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumers = 2 if order == "pairs" else 3
    rows = 64 * consumers
    programs = min(132, -(-seqlen // rows) * heads * batch)
    cut = hopper_cut.cut(seqlen, heads * batch, consumers, programs)
    kind = dict(zip(("whole_each", "whole_more", "tail"), cut, strict=True))
    kind |= {"CONSUMERS": consumers, "BLOCK_M": rows, "TAILS": order == "tails"}
    kind |= {"CAUSAL": order in ("causal", "pairs"), "PAIRS": order == "pairs"}
    seen = dict.fromkeys(((b, h, r) for b in range(batch) for h in range(heads)
                          for r in range(0, seqlen, 64)), 0)  # fmt: skip
    for program in walked(monkeypatch, seqlen, heads, batch, programs, **kind):
        for row, i_h, (i_b, _, end, *_), exists in program:
            if exists:
                for of_one in range(row, min(row + rows, end), 64):
                    seen[i_b, i_h, of_one] += 1
    assert set(seen.values()) == {1}


@pytest.mark.parametrize(
    ("seqlen", "n_heads", "whole", "tail"), [(2048, 32, 264, 2), (4096, 32, 660, 1)]
)
def test_what_would_wait_for_a_few_whole_blocks_is_cut_smaller(
    seqlen: int, n_heads: int, whole: int, tail: int
) -> None:
    each, more, found = hopper_cut.cut(seqlen, n_heads, 3, 132)
    assert (each * n_heads + more, found) == (whole, tail)


@pytest.mark.parametrize(
    ("seqlen", "n_heads", "three"),
    [(512, 1024, False), (768, 64, True), (1024, 32, False), (1024, 512, True), (2048, 32, True)],
)
def test_two_or_three_warpgroups_by_the_time_the_last_program_takes(
    seqlen: int, n_heads: int, three: bool
) -> None:
    assert hopper_cut.three_are_faster(seqlen, n_heads, 132) is three


def test_blocks_stay_whole_where_they_come_out_even() -> None:
    assert hopper_cut.cut(192 * 132, 1, 3, 132) == (132, 0, 3)
    assert hopper_cut.cut(16384, 32, 3, 132) == (85, 0, 3)
