"""Where packed sequences stand in workspaces of Hopper's gradients, in Triton's interpreter."""

from __future__ import annotations

from itertools import accumulate

import pytest
import torch

from tests.kernels.interpreted import Worker

KEYS, ROWS, PAD = 32, 16, 39  # a block's, and rows before and behind the sequences


def told(
    k: tuple[int, ...], q: tuple[int, ...], used: tuple[tuple[int, ...], ...]
) -> tuple[list[list[int]], list[list[int]]]:
    """Of every block of rows, and of every one of keys, what the list says; of keys and rows the
    first ``used`` count, if there are any."""
    from kernels.attention.common.packed.sequences import Packed
    from kernels.attention.hopper.packed import tiles as packed_tiles
    from tests.problems import problem_of

    cu_k, cu_q = (
        torch.tensor([*accumulate(lengths, initial=PAD)], dtype=torch.int32) for lengths in (k, q)
    )
    rows, keys = (
        (PAD + sum(lengths) + PAD) // block + len(lengths)
        for lengths, block in ((q, ROWS), (k, KEYS))
    )
    places = torch.full((rows + keys, 4), -7, dtype=torch.int32)
    packed = Packed(cu_k, cu_q, max(k), max(q), *(torch.tensor(n, dtype=torch.int32) for n in used))
    tokens = packed.spread(torch.empty(PAD + sum(k) + PAD, 2, 16))
    packed_tiles.listed(
        problem_of(tokens, tokens, tokens, causal=True, packed=packed),
        KEYS,
        pairs=False,
        by_head=False,
        programs=1,
        spare=0,
        places=places,
        place_rows=ROWS,
    )
    return places[:rows].tolist(), places[rows:].tolist()


@pytest.mark.parametrize(
    ("k", "q", "used"),
    [
        ((70,), (30,), ()),
        ((0, 0), (0, 5), ()),
        ((33, 0, 1, 32, 31, 64, 0), (0, 15, 16, 17, 1, 0, 100), ()),
        (tuple(i * 37 % 41 for i in range(30)), (11,) * 30, ()),
        ((100, 7, 64), (90, 40, 33), ((33, 0, 64), (5, 40, 17))),
    ],
    ids=lambda lengths: f"{len(lengths)}-sequences",
)
def test_every_row_stands_once_and_no_block_has_two_sequences(
    interpreter: Worker, k: tuple[int, ...], q: tuple[int, ...], used: tuple[tuple[int, ...], ...]
) -> None:
    used_k, used_q = used or (k, q)
    for found, lengths, counted, block in zip(
        interpreter.run(told, k, q, used), (q, k), (used_q, used_k), (ROWS, KEYS), strict=True
    ):
        wanted = {}
        first = first_key = PAD
        for i_b, (length, n_k) in enumerate(zip(counted, used_k, strict=True)):
            bounds = [first_key // KEYS + i_b, -(-n_k // KEYS)]
            for i in range(-(-length // block)):
                row = i * block
                place = [first + row, min(block, length - row), *bounds]
                wanted[first // block + i_b + i] = place
            first, first_key = first + lengths[i_b], first_key + k[i_b]
        assert len(wanted) == sum(-(-length // block) for length in counted)
        for i, place in enumerate(found):
            assert place == wanted.pop(i) if i in wanted else place[1] == 0
        assert not wanted
