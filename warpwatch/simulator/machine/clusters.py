"""Clusters: CTAs that run one program together, each with shared memory of its own.

Gluon speaks of the whole cluster. A layout says which part of a tensor each CTA has. One basis for
every bit of a CTA's number says where that bit leads; zeros mean that both CTAs have a copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from warpwatch.simulator.errors import MisuseError
from warpwatch.simulator.machine.races import Cells, Partition
from warpwatch.simulator.machine.regions import Region

Part = tuple[int, Cells, Region]  # a CTA, its memory, and which part of a view is in it


class Split:
    """How a tensor is spread over the CTAs of a cluster.

    Args:
        ctas: How many there are.
        layout: A layout of Gluon's, or what stands for one.
        rank: How many axes the tensor has.
    """

    def __init__(self, ctas: int, layout: Any, rank: int) -> None:
        self.ctas = ctas
        bits = ctas.bit_length() - 1
        bases = [tuple(one) for one in getattr(layout, "cga_layout", None) or ()]
        for axis, count in enumerate(getattr(layout, "cta_split_num", None) or ()):
            for bit in range(int(count).bit_length() - 1):
                bases.append(tuple(1 << bit if one == axis else 0 for one in range(2)))
        if len(bases) > bits:
            raise MisuseError(f"a layout for {1 << len(bases)} CTAs in a cluster of {ctas}")
        width = len(bases[0]) if bases else rank
        self.bases = bases + [(0,) * width] * (bits - len(bases))
        self.free = sum(1 << bit for bit, one in enumerate(self.bases) if not any(one))

    @property
    def pieces(self) -> int:
        """Parts that differ."""
        return self.ctas >> self.free.bit_count()

    def lead(self, cta: int) -> int:
        """The first CTA of those that have the same part."""
        return cta & ~self.free

    def group(self, cta: int) -> list[int]:
        """All CTAs that have the same part."""
        return [one for one in range(self.ctas) if self.lead(one) == self.lead(cta)]

    def owned(self, cta: int, shape: tuple[int, ...]) -> np.ndarray:
        """Which elements of a tensor a CTA has."""
        width = len(self.bases[0]) if self.bases else 0
        found = np.ones(shape, np.bool_)
        for axis in range(width):
            blocks = 1 << sum(one[axis] != 0 for one in self.bases)
            place = 0
            for bit, basis in enumerate(self.bases):
                place ^= basis[axis] if cta >> bit & 1 else 0
            at = len(shape) - width + axis
            length = max(1, shape[at] // blocks)
            form = [-1 if one == at else 1 for one in range(len(shape))]
            found &= (np.arange(shape[at]) // length == place).reshape(form)
        return found


def spread(cells: Cells, names: list[Cells], split: Split, shape: tuple[int, ...]) -> None:
    """Give every CTA of a cluster its part of an allocation.

    Args:
        cells: What is known of the first CTA's part.
        names: What is known of the others'.
        split: How the allocation is spread.
        shape: Its axes' lengths.
    """
    cells.split, cells.ctas = split, (cells, *names)
    cells.owned = tuple(split.owned(one, shape).reshape(-1) for one in range(split.ctas))


def parts_of(cells: Cells, at: np.ndarray, region: Region) -> tuple[Part, ...]:
    """What each CTA has of a view.

    Args:
        cells: The allocation.
        at: Numbers of the view's elements.
        region: The view, where there is one CTA alone.

    Returns:
        For every CTA its number, its memory and its part.
    """
    if len(cells.ctas) == 1:
        return ((0, cells, region),)
    return tuple(
        (cta, one, one.region(at[owned[at]]))
        for cta, (one, owned) in enumerate(zip(cells.ctas, cells.owned, strict=True))
    )


class Rendezvous:
    """The barrier of a cluster, at which all its CTAs arrive and wait."""

    def __init__(self, somebodies: int) -> None:
        self.coming = np.zeros(somebodies, np.int64)
        self.arrived = False
        self.fenced = False  # fence_init_release_cluster was said

    def arrive(self, who: Partition, relaxed: bool) -> None:
        """All CTAs arrive; a relaxed arrival says nothing without that fence."""
        if self.arrived:
            raise MisuseError(f"{who.name} arrives twice at the cluster's barrier", "misuse")
        self.arrived = True
        for one in who.ctas:
            if not relaxed or self.fenced:
                np.maximum(self.coming, one.known, out=self.coming)
            one.tick()
        self.fenced = False

    def wait(self, who: Partition) -> None:
        """All CTAs have arrived."""
        if not self.arrived:
            raise MisuseError(
                f"{who.name} waits at the cluster's barrier, at which nobody arrived", "deadlock"
            )
        self.arrived = False
        for one in who.ctas:
            np.maximum(one.known, self.coming, out=one.known)


def partners(who: Partition, pairs: bool) -> Iterator[tuple[int, Partition, tuple[int, ...]]]:
    """Who has products made, and whose memory they read.

    Args:
        who: A partition.
        pairs: Whether two CTAs make a product together: the even one does it for both.

    Yields:
        A CTA's number, its partition, and the CTAs whose parts are operands.
    """
    for cta, one in enumerate(who.ctas):
        if not pairs:
            yield cta, one, (cta,)
        elif cta % 2 == 0:
            yield cta, one, (cta, cta + 1)
