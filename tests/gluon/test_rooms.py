"""Values of packed sequences in fp8, turned around into rooms of their own: every column of a
room, for whatever lies behind a sequence's keys is multiplied by weights of 0."""

from __future__ import annotations

from itertools import accumulate

import pytest
import torch

from tests.kernels.interpreted import Worker

HEADS, HEAD_DIM = 2, 16
# Of 16 keys, in the order that a thread of the products has their scores in.
ORDER = [2 * t + more for t in range(4) for more in (0, 1, 8, 9)]


def columns(values: torch.Tensor, room: int) -> torch.Tensor:
    """(keys, heads, dim) as (heads, dim, columns of whole rooms), zeros behind the keys."""
    keys = len(values)
    wide = torch.zeros((max(1, -(-keys // room)) * room, HEADS, HEAD_DIM))
    wide[:keys] = values.float()
    return wide.unflatten(0, (-1, 16))[:, ORDER].flatten(0, 1).permute(1, 2, 0)


def run(
    lengths: tuple[int, ...], used: tuple[int, ...], room: int, by_sequence: bool
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """What is found and what is wanted, of each sequence: its columns, and its factors."""
    from kernels.attention.common.numerics.constants import LOG2_E
    from kernels.attention.common.numerics.fp8_scales import Scales
    from kernels.attention.hopper.fp8.prepare import prepare
    from tests.gluon.interpreter import hopper_on_the_cpu

    spare, batch = 30, len(lengths)
    v = torch.randn(sum(lengths) + spare, HEADS, HEAD_DIM).to(torch.float8_e4m3fn)
    ends = [0, *accumulate(lengths)]
    counted = [min(pair) for pair in zip(lengths, used or lengths, strict=True)]
    spoilt = torch.ones(len(v), dtype=torch.bool)
    for first, n in zip(ends, counted, strict=False):
        spoilt[first : first + n] = False
    v.view(torch.uint8)[spoilt] = 0x7F  # NaN
    # What is no sequence, where a list of fixed size is padded with zeros.
    cu = torch.tensor([*ends, 0], dtype=torch.int32)
    batch += 1
    used = (*used, 0) if used else ()
    begins = (cu, torch.tensor(used, dtype=torch.int32)) if used else cu
    scale = torch.rand(batch, HEADS) + 0.5 if by_sequence else torch.rand(HEADS) + 0.5
    with hopper_on_the_cpu():
        values, factors = prepare(v[None], HEADS, 0.3, Scales(None, scale, scale), begins, room)
    assert values.shape[:3] == (1, HEADS, HEAD_DIM)
    assert values.shape[3] == (len(v) // room + batch) * room
    found = []
    for i, (first, n) in enumerate(zip(ends, counted, strict=False)):  # not of the padding
        wanted = columns(v[first : first + n], room)
        begin = (first // room + i) * room
        found.append((values[0, :, :, begin : begin + wanted.shape[2]].float(), wanted))
        own = scale[i] if by_sequence else scale
        wanted = torch.stack((own * (0.3 * LOG2_E), own))
        found.append((factors[i if by_sequence else 0], wanted))
    return found


MANY = tuple(7 * i % 50 for i in range(300))  # more than are searched at once


@pytest.mark.parametrize("room", [128, 256])
@pytest.mark.parametrize(
    ("lengths", "used"),
    [
        ((256, 0, 1, 130, 257, 0), ()),
        ((0, 128, 300), (5, 128, 129)),
        ((200, 5, 133, 71), (130, 0, 200, 0)),
        (MANY, ()),
    ],
    ids=["all", "first", "used", "300"],
)
def test_a_sequence_has_its_values_and_zeros_behind_them(
    worker: Worker, lengths: tuple[int, ...], used: tuple[int, ...], room: int
) -> None:
    found = worker.run(run, lengths, used, room, room == 128)
    assert len(found) == 2 * len(lengths)
    for mine, wanted in found:
        assert torch.equal(mine, wanted) or torch.allclose(mine, wanted, rtol=1e-6, atol=0.0)
