"""Boxes that are views of memory have the values of those whose addresses are computed."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
import triton.language as tl

from warpwatch.simulator.errors import MisuseError
from warpwatch.simulator.machine.global_memory import Descriptor, Pointer, Storage
from warpwatch.simulator.values import unwritten

BOX = (4, 8)


def described(sizes: tuple[int, int], strides: tuple[int, int], first: int) -> Descriptor:
    tensor = torch.arange(400, dtype=torch.float32)
    storage = Storage(tensor)
    return Descriptor(
        Pointer((storage,), storage.first + 4 * first, tl.float32), sizes, strides, BOX
    )


def slowly(desc: Descriptor) -> Descriptor:
    """The same tensor, of which every address is computed."""
    # Of this one only: others keep their window.
    desc.window = lambda at: None  # type: ignore[method-assign]
    return desc


def drawn(chance: random.Random) -> tuple[Any, ...]:
    rows, columns = chance.randint(1, 9), chance.randint(1, 12)
    strides = chance.choice([(columns, 1), (columns + 3, 1), (1, rows), (1, 1), (0, 1), (2, 3)])
    at = (chance.randint(-9, 12), chance.randint(-12, 16))
    return (rows, columns), strides, chance.randint(0, 40), at


@pytest.mark.parametrize("seed", range(60))
def test_a_box_has_the_values_that_its_addresses_have(seed: int) -> None:
    sizes, strides, first, at = drawn(random.Random(seed))
    quick, slow = described(sizes, strides, first), slowly(described(sizes, strides, first))
    assert quick.window(at) is not None
    assert np.array_equal(quick.read(at), slow.read(at))


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_a_box_is_written_where_its_addresses_are(seed: int, adds: bool) -> None:
    sizes, strides, first, at = drawn(random.Random(seed))
    raw = np.arange(1, 33, dtype=np.float32).reshape(BOX)
    held = []
    for desc in (described(sizes, strides, first), slowly(described(sizes, strides, first))):
        desc.write(at, raw, adds)
        held.append(desc.storage.bytes.tobytes())
    assert held[0] == held[1]


def test_what_is_written_is_known_to_be() -> None:
    watch = unwritten.Unwritten()
    tensor = torch.zeros(64)
    watch.watch("empty", (), {}, tensor)
    unwritten.watched.append(watch)
    try:
        storage = Storage(tensor)
    finally:
        unwritten.watched.pop()
    desc = Descriptor(Pointer((storage,), storage.first, tl.float32), (6, 10), (10, 1), BOX)
    desc.write((4, 6), np.ones(BOX, np.float32))
    assert storage.written is not None
    found = storage.written.reshape(-1, 4)
    assert (found.all(axis=1) == found.any(axis=1)).all()
    assert np.flatnonzero(found[:, 0]).tolist() == [46, 47, 48, 49, 56, 57, 58, 59]


@pytest.mark.parametrize("at", [(0, 0, 0), (2**31, 0), (0,)], ids=str)
def test_what_is_wrong_with_a_box_is_said(at: tuple[int, ...]) -> None:
    with pytest.raises(MisuseError, match=r"coordinate"):
        described((4, 8), (8, 1), 0).read(at)


def test_a_box_beyond_the_memory_is_reported() -> None:
    desc = described((60, 8), (8, 1), 0)
    assert desc.window((52, 0)) is None
    with pytest.raises(MisuseError, match=r"of a tensor's memory of 1600 bytes is touched"):
        desc.read((52, 0))
