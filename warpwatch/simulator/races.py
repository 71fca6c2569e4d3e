"""Who has touched which element of shared memory, and whether others knew.

Everybody has a clock of everybody (vector clocks), and learns at barriers alone. An access is
judged by what who makes it *knows* to be done. So a race is found in every order in which a program
may run, not just in one where it does harm. What the hardware does later is judged as late as it
may come: a copy has not arrived until its barrier's phase was waited for, a product reads shared
memory until it was waited for, and so does a copy to global memory. Barriers among the warps of one
partition are Triton's own and not seen.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

SOMEBODIES = 192  # partitions and barriers of a program: who can have written
PARTITIONS = 8
NEVER = 1 << 60
BARE = "which was stored without fence_async_shared behind it, before this was let on"


class RaceError(AssertionError):
    """Two accesses, of which nothing says that one is done before the other."""


class Partition:
    """Warps that run the same code, and what they know to be done."""

    def __init__(self, number: int, name: str, warps: int, name_of: Callable[[int], str]) -> None:
        self.number, self.name, self.warps = number, name, warps
        self.name_of = name_of
        self.known = np.zeros(SOMEBODIES, np.int64)
        self.known[number] = 1
        self.unfenced: list[tuple[Cells, np.ndarray]] = []
        self.products: list[Product] = []  # not waited for, oldest first
        self.copies: list[tuple[Cells, np.ndarray]] = []  # to global memory, likewise
        # Copies to shared memory past registers that were not waited for: those of no group yet,
        # and of each group, oldest first.
        self.asked: list[tuple[Cells, np.ndarray]] = []
        self.groups: list[list[tuple[Cells, np.ndarray]]] = []
        self.turn = threading.Semaphore(0)
        self.until: Callable[[], bool] | None = None
        self.where = ""
        self.done = False

    def tick(self) -> None:
        """What comes now is not known to those who learned before."""
        self.known[self.number] += 1


class Cells:
    """For every element of an allocation who wrote and who read it last."""

    def __init__(self, what: str, size: int) -> None:
        self.what = what
        self.writer = np.full(size, -1, np.int16)
        self.written = np.zeros(size, np.int64)
        self.read = np.zeros((PARTITIONS, size), np.int64)
        self.copied = np.zeros(size, np.int32)  # copies to global memory that go on
        self.storer = np.full(size, -1, np.int16)  # the partition that stored it, if one did
        self.fenced = np.zeros(size, np.int64)  # that one's clock at the fence behind it

    def objection(self, at: np.ndarray, who: Partition, engine: bool) -> str | None:
        """Why ``who`` may not read; ``engine``: hardware does it for them."""
        writer = self.writer[at]
        # Hardware may read rows behind a matrix, which nobody wrote: NaN, if they get anywhere.
        unwritten = writer < 0
        if at.size and (unwritten.all() if engine else unwritten.any()):
            return f"{who.name} reads {self.what}, which nobody wrote"
        late = self.written[at] > who.known[writer]
        if (late & (writer >= 0)).any():
            name = who.name_of(int(writer[late & (writer >= 0)][0]))
            return f"{who.name} reads {self.what}, not knowing that {name} has written it"
        if engine and self.bare(at, who):
            return f"{who.name} lets hardware read {self.what}, {BARE}"
        return None

    def bare(self, at: np.ndarray, who: Partition) -> bool:
        """Whether some of it was stored, and ``who`` knows of no fence behind that."""
        storer = self.storer[at]
        return bool(((storer >= 0) & (self.fenced[at] > who.known[storer])).any())

    def fence(self, at: np.ndarray, who: Partition) -> None:
        self.fenced[at[self.storer[at] == who.number]] = who.known[who.number]

    def reads(self, at: np.ndarray, who: Partition) -> None:
        """``who`` reads, and has read when the next word is said."""
        why = self.objection(at, who, engine=False)
        if why:
            raise RaceError(why)
        self.read[who.number, at] = who.known[who.number]

    def starts_copying(self, at: np.ndarray, who: Partition) -> None:
        """The copy engine reads for ``who``."""
        why = self.objection(at, who, engine=True)
        if why:
            raise RaceError(why)
        self.copied[at] += 1

    def stops_copying(self, at: np.ndarray, who: Partition) -> None:
        self.copied[at] -= 1
        self.read[who.number, at] = who.known[who.number]

    def writes(
        self,
        at: np.ndarray,
        who: Partition,
        products: list[Product],
        told: tuple[int, int] | None = None,
    ) -> None:
        """``who`` writes, or, with the barrier (somebody, phase) that is ``told``, has it copied.
        ``products``: those whose values nobody has used yet."""
        if self.copied[at].any():
            raise RaceError(f"{who.name} writes {self.what} while it is copied to global memory")
        writer = self.writer[at]
        late = (writer >= 0) & (self.written[at] > who.known[writer])
        if late.any():
            name = who.name_of(int(writer[late][0]))
            raise RaceError(
                f"{who.name} writes {self.what}, not knowing that {name} has written it"
            )
        unknown = (self.read[:, at.ravel()] > who.known[:PARTITIONS, None]).any(axis=1)
        if unknown.any():
            name = who.name_of(int(unknown.argmax()))
            raise RaceError(f"{who.name} writes {self.what}, not knowing that {name} has read it")
        if told and self.bare(at, who):
            raise RaceError(f"{who.name} has hardware write {self.what}, {BARE}")
        for one in products:
            if one.may_read(self, at, who):
                one.spoil(f"{who.name} writes {self.what} while {one.who.name} multiplies it")
        self.writer[at], self.written[at] = told or (who.number, who.known[who.number])
        self.storer[at], self.fenced[at] = (-1, 0) if told else (who.number, NEVER)
        if not told:
            who.unfenced.append((self, at))

    def has_not_arrived(self, at: np.ndarray) -> None:
        """What was written is not there before ``has_arrived``."""
        self.written[at] = NEVER

    def has_arrived(self, at: np.ndarray, who: Partition) -> None:
        self.written[at] = who.known[who.number]


class Product:
    """A product of the matrix unit: what it read, and whether that was there as long as it ran.

    A kernel may multiply what another one overwrites, as long as nobody looks at the result: so a
    race is told when the value is used, not when it happens.
    """

    def __init__(self, who: Partition) -> None:
        self.who = who
        self.value: Any = None
        self.operands: list[tuple[Cells, np.ndarray]] = []
        self.before: list[Product] = []  # whose sums it adds to
        self.waited: int | None = None  # the partition's clock when it was waited for
        self.spoilt: str | None = None

    def reads(self, cells: Cells, at: np.ndarray) -> None:
        self.operands.append((cells, at))
        self.spoil(cells.objection(at, self.who, engine=True))

    def spoil(self, why: str | None) -> None:
        self.spoilt = self.spoilt or why

    def may_read(self, cells: Cells, at: np.ndarray, writer: Partition) -> bool:
        """Whether it may still do so, as far as ``writer`` knows."""
        if self.waited is not None and self.waited <= writer.known[self.who.number]:
            return False
        return any(mine is cells and np.intersect1d(own, at).size for mine, own in self.operands)

    def use(self, unused: list[Product]) -> None:
        for one in self.before:
            one.use(unused)
        self.before = []
        if self.spoilt:
            raise RaceError(self.spoilt)
        if self in unused:
            unused.remove(self)
            for cells, at in self.operands:
                cells.read[self.who.number, at] = np.maximum(
                    cells.read[self.who.number, at], self.waited
                )
