"""Who has touched which part of shared memory, and whether others knew.

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

from warpwatch.simulator.errors import NOWHERE, MisuseError, RaceError, Site, here
from warpwatch.simulator.machine.regions import Atom, Partitioning, Region

SOMEBODIES = 192  # partitions and barriers of a program: who can have written
PARTITIONS = 16  # the first half of them partitions, the others their tensor cores
NEVER = 1 << 60
BARE = "which was stored without fence_async_shared behind it, before this was let on"
UNWRITTEN, UNFENCED = "value nobody wrote", "missing fence"
IN_FLIGHT = "copy in flight at the end"


class Partition:
    """Warps that run the same code, and what they know to be done."""

    def __init__(
        self,
        number: int,
        name: str,
        warps: int,
        name_of: Callable[[int], str],
        somebodies: int = SOMEBODIES,
    ) -> None:
        self.number, self.name, self.warps = number, name, warps
        self.name_of = name_of
        self.known = np.zeros(somebodies, np.int64)
        self.known[number] = 1
        self.ctas = [self]  # the same partition in every CTA of the cluster, itself first
        self.unfenced: list[tuple[Cells, Region]] = []
        self.products: list[Product] = []  # not waited for, oldest first
        self.copies: list[tuple[Cells, Region]] = []  # to global memory, likewise
        # Copies to shared memory past registers that were not waited for: those of no group yet,
        # and of each group, oldest first.
        self.asked: list[tuple[Cells, Region]] = []
        self.groups: list[list[tuple[Cells, Region]]] = []
        # Taken: its thread waits for it. Python's semaphores take twice as long.
        self.turn = threading.Lock()
        self.turn.acquire()
        self.until: Callable[[], bool] | None = None
        self.where, self.site = "", NOWHERE  # what it waits for, and in which line
        self.done = False
        self.worked = 0  # the clock of the last that it did, of a tensor core

    @property
    def clock(self) -> int:
        """Its own time."""
        return int(self.known[self.number])

    def tick(self) -> None:
        """What comes now is not known to those who learned before."""
        self.known[self.number] += 1


def in_every_cta(
    number: int, name: str, warps: int, name_of: Callable[[int], str], ctas: int
) -> list[Partition]:
    """A partition in every CTA of a cluster.

    Args:
        number: Its number in the first one.
        name: Its name in reports.
        warps: How many warps run it.
        name_of: Says how somebody is named.
        ctas: How many CTAs the cluster has.

    Returns:
        One for every CTA, each of which knows all.
    """
    made = [
        Partition(
            cta * PARTITIONS + number,
            name if ctas == 1 else f"{name} of CTA {cta}",
            warps,
            name_of,
            SOMEBODIES * ctas,
        )
        for cta in range(ctas)
    ]
    for one in made:
        one.ctas = made
    return made


class Cells:
    """For every part of an allocation who wrote and who read it last.

    Args:
        what: The allocation's name in reports.
        size: Its elements.
        parts: The parts that are told apart, where other programs found some before.
        partitions: How many partitions there are, those of other CTAs included.
    """

    def __init__(
        self,
        what: str,
        size: int,
        parts: Partitioning | None = None,
        partitions: int = PARTITIONS,
    ) -> None:
        self.what, self.partitions = what, partitions
        self.parts = parts or Partitioning(size)
        self.atoms = [Atom(partitions) for _ in self.parts.sizes]
        # Parts that hardware filled from memory that it was not to read, and what is wrong.
        self.spoilt: list[tuple[Region, RaceError]] = []
        # In a cluster: every CTA's memory, itself first, how it is spread, and who has what.
        self.ctas: tuple[Cells, ...] = (self,)
        self.split: Any = None
        self.owned: tuple[np.ndarray, ...] = ()
        # Bytes of an element of a view and of the allocation: at most twice as many of either.
        self.items = (1, 1)

    def region(self, at: np.ndarray) -> Region:
        """The part whose elements have the numbers ``at``, a view of the allocation's own."""
        seen, own = self.items
        if seen == own:
            return self.parts.region(at)
        first, last = at.reshape(-1) * seen // own, (at.reshape(-1) * seen + seen - 1) // own
        return self.parts.region(np.unique(np.concatenate([first, last])))

    def _of(self, region: Region) -> list[Atom]:
        numbers = region.atoms
        for parent in self.parts.parents[len(self.atoms) :]:
            self.atoms.append(self.atoms[parent].copy())
        return [self.atoms[one] for one in numbers]

    def objection(self, region: Region, who: Partition, engine: bool) -> RaceError | None:
        """Why ``who`` may not read; ``engine``: hardware does it for them."""
        atoms = self._of(region)
        known = who.known
        # Hardware may read rows behind a matrix, which nobody wrote: NaN, if they get anywhere.
        unwritten = [one.writer < 0 for one in atoms]
        if atoms and (all(unwritten) if engine else any(unwritten)):
            return RaceError(f"{who.name} reads {self.what}, which nobody wrote", UNWRITTEN)
        for one in atoms:
            if one.writer >= 0 and one.written > known[one.writer]:
                name = who.name_of(one.writer)
                return RaceError(
                    f"{who.name} reads {self.what}, not knowing that {name} has written it",
                    sites=(("reads", here()), ("wrote", one.wrote)),
                )
        if engine and (bare := self._bare(atoms, who)):
            return RaceError(
                f"{who.name} lets hardware read {self.what}, {BARE}",
                UNFENCED,
                (("lets hardware read", here()), ("stored", bare.wrote)),
            )
        return None

    def _bare(self, atoms: list[Atom], who: Partition) -> Atom | None:
        """One that was stored, if ``who`` knows of no fence behind that."""
        for one in atoms:
            if one.storer >= 0 and one.fenced > who.known[one.storer]:
                return one
        return None

    def fence(self, region: Region, who: Partition) -> None:
        for one in self._of(region):
            if one.storer == who.number:
                one.fenced = who.clock

    def reads(self, region: Region, who: Partition) -> None:
        """``who`` reads, and has read when the next word is said."""
        why = self.objection(region, who, engine=False)
        if why:
            raise why
        self.has_read(region, who, who.clock, here())

    def has_read(self, region: Region, who: Partition, clock: int, site: Site) -> None:
        for one in self._of(region):
            one.read[who.number] = max(one.read[who.number], clock)
            one.readers[who.number] = site

    def starts_copying(self, region: Region, who: Partition) -> None:
        """The copy engine reads for ``who``."""
        why = self.objection(region, who, engine=True)
        if why:
            raise why
        site = here()
        for one in self._of(region):
            one.copied += 1
            one.copier = site

    def stops_copying(self, region: Region, who: Partition) -> None:
        for one in self._of(region):
            one.copied -= 1
            one.read[who.number] = who.clock
            one.readers[who.number] = one.copier

    def writes(
        self,
        region: Region,
        who: Partition,
        products: list[Product],
        told: tuple[int, int] | None = None,
    ) -> None:
        """``who`` writes, or, with the barrier (somebody, phase) that is ``told``, has it copied.
        ``products``: those whose values nobody has used yet."""
        atoms, site, known = self._of(region), here(), who.known
        for one in atoms:
            if one.copied:
                raise RaceError(
                    f"{who.name} writes {self.what} while it is copied to global memory",
                    sites=(("writes", site), ("copies", one.copier)),
                )
            if one.writer >= 0 and one.written > known[one.writer]:
                name = who.name_of(one.writer)
                raise RaceError(
                    f"{who.name} writes {self.what}, not knowing that {name} has written it",
                    sites=(("writes", site), ("wrote", one.wrote)),
                )
        for one in atoms:
            for number, clock in enumerate(one.read):
                if clock > known[number]:
                    name = who.name_of(number)
                    raise RaceError(
                        f"{who.name} writes {self.what}, not knowing that {name} has read it",
                        sites=(("writes", site), ("read", one.readers[number])),
                    )
        if told and (bare := self._bare(atoms, who)):
            raise RaceError(
                f"{who.name} has hardware write {self.what}, {BARE}",
                UNFENCED,
                (("has hardware write", site), ("stored", bare.wrote)),
            )
        for product in products:
            if product.may_read(self, region, who):
                product.spoil(
                    RaceError(
                        f"{who.name} writes {self.what} while {product.who.name} multiplies it",
                        sites=(("writes", site), ("multiplies", product.site)),
                    )
                )
        writer, clock = told or (who.number, who.clock)
        for one in atoms:
            one.writer, one.written, one.wrote = writer, clock, site
            one.storer, one.fenced = (-1, 0) if told else (who.number, NEVER)
        if not told:
            who.unfenced.append((self, region))

    def has_not_arrived(self, region: Region) -> None:
        """What was written is not there before ``has_arrived``."""
        for one in self._of(region):
            one.written = NEVER

    def has_arrived(self, region: Region, who: Partition) -> None:
        for one in self._of(region):
            one.written = who.clock

    def copier(self, region: Region) -> Site:
        """The line that had a part copied to global memory last."""
        return self._of(region)[0].copier if region.atoms else NOWHERE

    def arrives_with(self, region: Region, somebody: int, phase: int) -> None:
        """What was written is there when a barrier's phase is complete."""
        for one in self._of(region):
            one.writer, one.written = somebody, phase

    def in_flight(self, known: np.ndarray) -> Site | None:
        """The line of a copy by hardware that nobody of those who ``know`` has waited for."""
        for one in self.atoms:
            if one.writer >= self.partitions and one.written > known[one.writer]:
                return one.wrote
        return None


class Product:
    """A product of the matrix unit: what it read, and whether that was there as long as it ran.

    A kernel may multiply what another one overwrites, as long as nobody looks at the result: so a
    race is told when the value is used, not when it happens.
    """

    def __init__(self, who: Partition) -> None:
        self.who, self.site = who, here()
        self.value: Any = None
        self.operands: list[tuple[Cells, Region]] = []
        self.before: list[Product] = []  # whose sums it adds to
        self.twins: list[Product] = []  # the same product in other CTAs of the cluster
        self.waited: int | None = None  # the partition's clock when it was waited for
        self.spoilt: RaceError | None = None

    def reads(self, cells: Cells, region: Region) -> None:
        self.operands.append((cells, region))
        self.spoil(cells.objection(region, self.who, engine=True))

    def spoil(self, why: RaceError | None) -> None:
        self.spoilt = self.spoilt or why

    def may_read(self, cells: Cells, region: Region, writer: Partition) -> bool:
        """Whether it may still do so, as far as ``writer`` knows."""
        if self.waited is not None and self.waited <= writer.known[self.who.number]:
            return False
        return any(mine.atoms is cells.atoms and own.meets(region) for mine, own in self.operands)

    def use(self, unused: list[Product]) -> None:
        for one in (*self.before, *self.twins):
            one.use(unused)
        self.before = []
        if self.spoilt:
            raise self.spoilt
        if self in unused and self.waited is not None:
            unused.remove(self)
            for cells, region in self.operands:
                cells.has_read(region, self.who, self.waited, self.site)


def check_ended(who: Partition) -> None:
    """Raise if a partition ends while an engine works for it.

    Args:
        who: The partition.

    Raises:
        MisuseError: What still runs.
    """
    if who.products:
        raise MisuseError(
            f"{who.name} ends while a product of it runs",
            "product in flight at the end",
            (("multiplies", who.products[0].site),),
        )
    if who.copies:
        raise MisuseError(
            f"{who.name} ends while the copy engine reads shared memory for it",
            IN_FLIGHT,
            (("copies", who.copies[0][0].copier(who.copies[0][1])),),
        )
    if who.asked or who.groups:
        raise MisuseError(
            f"{who.name} ends while what it asked for is copied to shared memory", IN_FLIGHT
        )
