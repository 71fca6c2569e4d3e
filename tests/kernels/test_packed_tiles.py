"""The list of tiles of packed sequences, in Triton's interpreter: each once, the longest first."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, groupby

import pytest
import torch

from tests.kernels.interpreted import Worker

PROGRAMS = 4


@dataclass(frozen=True, kw_only=True)
class Case:
    q: tuple[int, ...]
    k: tuple[int, ...] = ()
    rows: int = 128
    most: int = 0  # the longest sequence as the caller states it
    heads: int = 3
    causal: bool = False
    pairs: bool = False
    by_head: bool = True
    of_keys: bool = False
    # Of each sequence these rows and keys are used, unless empty.
    used: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())

    @property
    def counted(self) -> list[tuple[int, ...]]:
        """Rows, and keys, of each sequence that are used."""
        both = zip((self.q, self.keys), self.used, strict=True)
        return [tuple(map(min, lengths, used or lengths)) for lengths, used in both]

    @property
    def keys(self) -> tuple[int, ...]:
        return self.k or self.q

    @property
    def longest(self) -> int:
        return self.most or max(self.q)

    def __str__(self) -> str:
        lengths = "+".join(map(str, self.q[:5])) + "+..." * (len(self.q) > 5)
        order = ("causal" if self.causal else "full") + "-pairs" * self.pairs
        order += "-by-head" * self.by_head + "-of-keys" * self.of_keys + "-used" * any(self.used)
        return f"q{lengths}-rows{self.rows}-max{self.longest}-{order}"


def told_plainly(
    case: Case,
    cu_q: torch.Tensor,
    cu_k: torch.Tensor,
    tiles: torch.Tensor,
    room: int,
    places: torch.Tensor | None,
) -> None:
    """Compare with the twin in Python."""
    from kernels.attention.hopper.packed import tiles as packed_tiles

    (plain,) = packed_tiles.list_plainly(
        cu_q=cu_q.tolist(),
        cu_k=cu_k.tolist(),
        heads=case.heads,
        most=-(-case.longest // case.rows),
        units=room,
        programs=PROGRAMS,
        ROWS=case.rows,
        CAUSAL=case.causal,
        PAIRS=case.pairs,
        BY_HEAD=case.by_head,
        places=places,
    ).values()
    fields = packed_tiles.FIELDS.value
    assert len(plain) == fields * (1 + plain[0])
    for i, number in enumerate(plain):
        written = i == 0 if i < fields else case.pairs or i % fields != 2
        assert not written or number == int(tiles[i]), i


def listed(case: Case) -> torch.Tensor:
    """(units, what each says) of sequences that begin at row 3."""
    from kernels.attention.common.packed.sequences import Packed
    from kernels.attention.hopper.packed import tiles as packed_tiles
    from tests.problems import problem_of

    cu_q, cu_k = (
        torch.tensor([3, *accumulate(lengths, initial=3)][1:], dtype=torch.int32)
        for lengths in (case.q, case.keys)
    )
    used = (torch.tensor(one, dtype=torch.int32) if one else None for one in case.used)
    packed = Packed(cu_q, cu_k, case.longest, max(case.keys), *used)
    blocks = sum(case.q) // case.rows + sum(case.keys) // 64 + 2 * len(case.q)
    places = torch.empty((blocks, 4), dtype=torch.int32) if case.of_keys else None
    q = packed.spread(torch.empty(sum(case.q), case.heads, 16))
    tiles, room = packed_tiles.listed(
        problem_of(q, q, q, causal=case.causal, packed=packed),
        case.rows,
        pairs=case.pairs,
        by_head=case.by_head,
        programs=PROGRAMS,
        spare=PROGRAMS,
        places=places,
        place_rows=64,
    )
    if not any(case.used):
        told_plainly(case, cu_q, cu_k, tiles, room, places)
    fields = packed_tiles.FIELDS.value
    assert tiles.numel() == fields * (1 + room + PROGRAMS)
    count = int(tiles[0])
    assert count <= room
    return tiles[fields : fields * (1 + count)].view(count, fields).clone()


@pytest.mark.parametrize(
    "case",
    [
        Case(q=(300,)),
        Case(q=(300, 0, 1, 128, 129, 700), k=(5, 10, 0, 900, 129, 700)),
        Case(q=(300, 0, 1, 128, 129, 700), causal=True, pairs=True),
        Case(q=(300, 0, 1, 128, 129, 700), pairs=True),
        Case(q=(300, 0, 1, 128, 129, 700), pairs=True, by_head=False),
        Case(
            q=(300, 0, 1, 128, 129, 700),
            k=(5, 10, 0, 900, 129, 700),
            causal=True,
            rows=192,
            by_head=False,
        ),
        Case(q=(0, 0)),
        Case(q=(50, 700), most=5000, causal=True, pairs=True),
        Case(q=(50, 700), most=200, by_head=False),
        Case(q=tuple(i * 37 % 300 for i in range(290)), causal=True, pairs=True, rows=64),
        Case(q=(300, 0, 1, 128, 700), causal=True, used=((170, 3, 1, 0, 699), ())),
        Case(q=(300, 0, 1, 128, 700), pairs=True, used=((), (170, 3, 0, 129, 5))),
        # Tiles of keys: names change places.
        Case(
            q=(300, 0, 1, 128, 129, 700),
            k=(5, 10, 0, 900, 129, 700),
            causal=True,
            by_head=False,
            of_keys=True,
        ),
        Case(
            q=(300, 0, 1, 128, 129, 700),
            k=(5, 10, 0, 900, 129, 700),
            causal=True,
            pairs=True,
            by_head=False,
            of_keys=True,
        ),
        Case(
            q=(300, 7, 1, 128, 700),
            k=(5, 10, 0, 900, 700),
            used=((170, 7, 1, 0, 699), (5, 9, 0, 900, 300)),
            of_keys=True,
        ),
    ],
    ids=str,
)
def test_every_tile_is_listed_once_and_the_longest_come_first(
    interpreter: Worker, case: Case
) -> None:
    found = interpreter.run(listed, case)
    most = -(-case.longest // case.rows)
    firsts = (accumulate(lengths[:-1], initial=3) for lengths in (case.q, case.keys))
    wanted = [
        (i_h, i_m, first_q + n_q, n_q, first_k + n_k, n_k, i_b)
        for i_b, (first_q, first_k, n_q, n_k) in enumerate(zip(*firsts, *case.counted, strict=True))
        for i_h in range(case.heads)
        for i_m in range(min(-(-n_q // case.rows), most))
    ]
    tiles, order = [], []
    for i_h, *both, end_q, n_q, end_k, n_k, i_b in found.tolist():
        both = [i_m for i_m in both if i_m >= 0] if case.pairs else both[:1]
        tiles += [(i_h, i_m, end_q, n_q, end_k, n_k, i_b) for i_m in both]
        # Longest sequences first; of these one head or, of all, the longest tiles.
        last_first = (case.causal or case.pairs) and not case.of_keys
        within = i_h if case.by_head else (-both[0] if last_first else both[0])
        order.append((n_q - 2 * n_k if case.causal else -n_k, end_q, within))
    assert sorted(tiles) == sorted(wanted)
    assert [one[0] for one in order] == sorted(one[0] for one in order)
    of_one = [[one[2] for one in each] for _, each in groupby(order, key=lambda one: one[1])]
    if case.causal and not (case.pairs or case.by_head or case.of_keys):
        many = [each for each in of_one if len(each) >= PROGRAMS]
        for shortest_first in many[-2::-2]:
            shortest_first.reverse()
    assert all(each == sorted(each) for each in of_one)


@pytest.mark.parametrize(
    ("lengths", "heads", "of_mean"),
    [
        # Each sequence longest first, programs would have 1.2 to 1.7 times the mean.
        ((3000,) * 8, 16, 1.04),
        ((8192,) * 2, 12, 1.01),
        ((5900, 5800, 4600), 8, 1.08),
        ((6100, 5200, 3100, 400), 8, 1.10),
    ],
)
def test_programs_of_single_causal_tiles_end_together(
    lengths: tuple[int, ...], heads: int, of_mean: float
) -> None:
    from kernels.attention.hopper.packed import tiles as packed_tiles

    programs, ends = 132, [0, *accumulate(lengths)]
    (plain,) = packed_tiles.list_plainly(
        cu_q=ends, cu_k=ends, heads=heads, most=1000, units=10**6, programs=programs,
        ROWS=192, CAUSAL=True, PAIRS=False, BY_HEAD=False,
    ).values()  # fmt: skip
    fields, keys = packed_tiles.FIELDS.value, [0] * programs
    for i_tile in range(plain[0]):
        i_turn, i_program = divmod(i_tile, programs)
        unit = plain[fields * (1 + i_tile) :][:fields]
        place = i_program if i_turn % 2 == 0 else programs - 1 - i_program
        keys[place] += -(-min(192 * (unit[1] + 1), unit[6]) // 128)
    assert max(keys) <= of_mean * sum(keys) / programs
