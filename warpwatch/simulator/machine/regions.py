"""Parts of an allocation that a kernel tells apart, found while it runs.

A kernel touches an allocation through few views. Elements that every view so far has all or none of
are one *atom*: what is known of one of them is known of all. A view that cuts an atom splits it. So
nothing is kept element by element, and nothing is lost.
"""

from __future__ import annotations

import numpy as np

from warpwatch.simulator.errors import NOWHERE, Site


class Atom:
    """Who wrote and who read some elements last, and where.

    Args:
        partitions: How many can have read them.
    """

    __slots__ = (
        "copied", "copier", "fenced", "read", "readers", "storer", "writer", "written", "wrote",
    )  # fmt: skip

    def __init__(self, partitions: int) -> None:
        self.writer, self.written, self.wrote = -1, 0, NOWHERE
        self.read = [0] * partitions
        self.readers: list[Site] = [NOWHERE] * partitions
        self.copied, self.copier = 0, NOWHERE  # copies to global memory that go on
        self.storer = -1  # the partition that stored it, if one did
        self.fenced = 0  # that one's clock at the fence behind it

    def copy(self) -> Atom:
        """What is known of a part of these elements."""
        found = Atom(0)
        found.writer, found.written, found.wrote = self.writer, self.written, self.wrote
        found.read, found.readers = list(self.read), list(self.readers)
        found.copied, found.copier = self.copied, self.copier
        found.storer, found.fenced = self.storer, self.fenced
        return found


class Region:
    """A view of an allocation, as the atoms it consists of."""

    __slots__ = ("_at", "_atoms", "_count", "_parts", "_set")

    def __init__(self, parts: Partitioning, at: np.ndarray) -> None:
        self._parts, self._at = parts, at
        self._count = -1
        self._atoms: tuple[int, ...] = ()
        self._set: frozenset[int] = frozenset()

    @property
    def atoms(self) -> tuple[int, ...]:
        """Their numbers now: others may have been split since."""
        count = len(self._parts.sizes)
        if self._count != count:
            found = self._parts.numbers(self._at)
            self._atoms, self._set, self._count = tuple(found), frozenset(found), count
        return self._atoms

    def meets(self, other: Region) -> bool:
        """Whether two views of one allocation share an element."""
        if self is other:
            return bool(self._at.size)
        self.atoms, other.atoms  # noqa: B018  # both of today
        return not self._set.isdisjoint(other._set)


class Partitioning:
    """The atoms of an allocation of ``size`` elements. All programs of a launch share it."""

    def __init__(self, size: int) -> None:
        self.label = np.zeros(size, np.int32)
        self.sizes, self.parents = [size], [-1]
        self._regions: dict[tuple[object, ...], Region] = {}

    def region(self, at: np.ndarray) -> Region:
        """The region whose elements have the numbers ``at``."""
        if at.base is None:  # no view: its address says nothing for long
            key: tuple[object, ...] = (at.tobytes(),)
        else:
            first = int(at.flat[0]) if at.size else -1
            key = (first, at.shape, at.strides)
        found = self._regions.get(key)
        if found is None:
            self._split(at)
            found = self._regions[key] = Region(self, at)
        return found

    def numbers(self, at: np.ndarray) -> list[int]:
        """Which atoms the elements ``at`` are of."""
        labels = self.label[at]
        if not labels.size:
            return []
        first = labels.flat[0]
        if (labels == first).all():
            return [int(first)]
        return [int(one) for one in np.unique(labels)]

    def _split(self, at: np.ndarray) -> None:
        labels = self.label[at].ravel()
        counts = np.bincount(labels, minlength=len(self.sizes))
        for number in np.flatnonzero(counts):
            inside = int(counts[number])
            if inside < self.sizes[number]:
                self.label[at.ravel()[labels == number]] = len(self.sizes)
                self.sizes[number] -= inside
                self.sizes.append(inside)
                self.parents.append(int(number))
