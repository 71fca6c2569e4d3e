"""A program of a launch: its partitions, one of which runs at a time, and its barriers.

Partitions change at barriers, in an order that a seed draws. What they may do to shared memory does
not hang on that order: races.py.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from warpwatch.simulator.errors import NOWHERE, DeadlockError, MisuseError, here
from warpwatch.simulator.machine.barriers import Barrier, Meeting
from warpwatch.simulator.machine.clusters import Rendezvous
from warpwatch.simulator.machine.races import (
    IN_FLIGHT,
    PARTITIONS,
    SOMEBODIES,
    Cells,
    Partition,
    Product,
    check_ended,
    in_every_cta,
)
from warpwatch.simulator.machine.regions import Partitioning
from warpwatch.simulator.timeline.log import Log
from warpwatch.simulator.values.elements import quiet

YIELDS = 0.25  # how often others go on where nobody must wait
STEPS = 1_000_000  # of loops, unless somebody says another number


class StoppedError(BaseException):
    """Another partition has failed: this one ends."""


class Others(Protocol):
    """The other programs of a launch (grid.py)."""

    def changed(self, who: Program, flag: bool) -> None: ...

    def looked(self, who: Program, address: int, value: object, atomic: bool) -> None: ...


class Program:
    """One program of a launch, while it runs."""

    def __init__(
        self,
        place: tuple[int, int, int],
        grid: tuple[int, int, int],
        warps: int,
        seed: int,
        parts: dict[tuple[int, int], Partitioning] | None = None,
        ctas: int = 1,
    ):
        self.place, self.grid, self.ctas = place, grid, ctas
        self.chance = random.Random(seed)
        self.favours = self.chance.random() < 0.5
        self.ranks = self.chance.sample(range(PARTITIONS // 2), PARTITIONS // 2)
        self.names: dict[int, str] = {}
        self.partitions = [self.partition(0, "the default partition", warps)]
        self.now = self.partitions[0]
        self.barriers: dict[tuple[int, int, int], Barrier] = {}  # by memory, place and CTA
        self.ended: list[Barrier] = []
        self.cores: dict[int, Partition] = {}
        self.meetings: dict[int, Meeting] = {}
        self.rendezvous = Rendezvous(SOMEBODIES * ctas)
        self.pairs = False  # two CTAs make one product
        self.allocations: list[Cells] = []
        self.unused: list[Product] = []  # that started, and of whose value nobody knows yet
        self.failure: BaseException | None = None
        self.parts = {} if parts is None else parts
        self.others: Others | None = None  # the programs of its launch
        self.log: Log | None = None  # where it is noted what it does
        self.strict = False  # whether barriers want a fence behind their init
        self.steps = STEPS  # of loops that it may still take

    def changed_memory(self, flag: bool = True) -> None:
        """Global memory has changed that other programs may wait for, maybe a ``flag``."""
        if self.others is not None:
            self.others.changed(self, flag)

    def looked_at_memory(self, address: int, value: object, atomic: bool) -> None:
        """Global memory was read that other programs may change."""
        if self.others is not None:
            self.others.looked(self, address, value, atomic)

    def parts_of(self, number: int, size: int) -> Partitioning:
        """What other programs of the launch found of an allocation."""
        key = (number, size)
        if key not in self.parts:
            self.parts[key] = Partitioning(size)
        return self.parts[key]

    def name_of(self, somebody: int) -> str:
        return self.names.get(somebody, f"somebody {somebody}")

    def partition(self, number: int, name: str, warps: int) -> Partition:
        """A new partition, one in every CTA; the first is the one that runs."""
        made = in_every_cta(number, name, warps, self.name_of, self.ctas)
        for one in made:
            self.names[one.number] = one.name
        return made[0]

    # Barriers.

    def new_barrier(self, key: tuple[int, int, int], count: int, name: str) -> None:
        if key in self.barriers:
            raise MisuseError(f"{name} is initialised twice")
        first, most = PARTITIONS * self.ctas, SOMEBODIES * self.ctas
        somebody = first + len(self.barriers) + len(self.ended)
        if somebody >= most:
            raise MisuseError(f"more than {most - first} barriers")
        self.names[somebody] = f"a copy to {name}"
        made = self.barriers[key] = Barrier(somebody, count, name, most)
        made.log = self.log if key[2] == 0 else None
        maker = self.now.ctas[key[2]]
        made.made = (maker.number, maker.clock)

    def forget(self, key: tuple[int, int, int]) -> None:
        """A barrier is invalidated; another one may be initialised in its place."""
        self.ended.append(self.barriers.pop(key))

    def core_of(self, who: Partition) -> Partition:
        """The tensor core, as it works for a partition."""
        if who.number not in self.cores:
            number = PARTITIONS // 2 + who.number
            name = f"the tensor core for {who.name}"
            self.cores[who.number] = Partition(number, name, 1, self.name_of, len(who.known))
            self.names[number] = name
        return self.cores[who.number]

    def wait(self, barriers: list[tuple[Partition, Barrier]], parity: int) -> None:
        """Partitions of CTAs wait, each at a barrier."""
        name = barriers[0][1].name
        if parity not in (0, 1):
            raise MisuseError(f"expected 0 or 1 as the phase of {name}, got {parity}")
        if any(one.phases % 2 == parity for _, one in barriers):
            missed = "".join(one.missed(who, parity) for who, one in barriers)
            self.wait_until(
                lambda: all(one.phases % 2 != parity for _, one in barriers),
                f"phase {parity} of {name}{missed}",
            )
        for who, one in barriers:
            one.learn(who, parity)

    def meet(self, number: int, threads: int, stays: bool) -> None:
        meeting = self.meetings.setdefault(number, Meeting(number, self.ctas))
        who = self.now
        if self.log is not None:
            self.log.arrives(meeting, who, "arrive at")
        for coming, one in zip(meeting.coming, who.ctas, strict=True):
            np.maximum(coming, one.known, out=coming)
            one.tick()
        meeting.threads += 32 * who.warps
        time = meeting.times
        if meeting.threads > threads:
            raise MisuseError(f"{who.name} brings barrier {number} to more than {threads} threads")
        if meeting.threads == threads:
            meeting.threads, meeting.times = 0, time + 1
            np.maximum(meeting.known, meeting.coming, out=meeting.known)
            meeting.coming[:] = 0
            if self.log is not None:
                self.log.completes(meeting)
        if stays:
            self.wait_until(lambda: meeting.times > time, f"barrier {number} of {threads} threads")
            for known, one in zip(meeting.known, who.ctas, strict=True):
                np.maximum(one.known, known, out=one.known)
            if self.log is not None:
                self.log.waits(meeting, time + 1, who)
        else:
            self.let_others()

    def note(self, what: str) -> None:
        """The partition that runs does something by itself."""
        if self.log is not None:
            self.log.word(self.now, what)

    def fence(self) -> None:
        self.note("fence")
        for who in self.now.ctas:
            for cells, region in who.unfenced:
                cells.fence(region, who)
            who.unfenced = []
        for barrier in self.barriers.values():
            barrier.fenced = True

    # Partitions take turns.

    def let_others(self) -> None:
        """At times another partition goes on here."""
        if self.chance.random() < YIELDS:
            others = self.ready(but=self.now)
            if others and self.next_of([*others, self.now]) is not self.now:
                self._hand_over(self.next_of(others))

    def next_of(self, ready: list[Partition]) -> Partition:
        """Half of the programs have favourites: they run whenever they can, and get far ahead."""
        if self.favours:
            return min(ready, key=lambda one: self.ranks[one.number])
        return self.chance.choice(ready)

    def ready(self, but: Partition) -> list[Partition]:
        return [
            one
            for one in self.partitions
            if one is not but and not one.done and (one.until is None or one.until())
        ]

    def deadlock(self) -> DeadlockError:
        """Who waits for what, where nobody can go on."""
        who = [one for one in self.partitions if not one.done]
        if self.log is not None:
            self.log.stuck([one for one in who if one.where])
        told = "; ".join(f"{one.name} waits for {one.where}" for one in who)
        sites = tuple((f"{one.name} waits", one.site) for one in who)
        return DeadlockError(told, sites=sites)

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        if holds():
            return
        who = self.now
        who.until, who.where, who.site = holds, what, here()
        while not holds():
            others = self.ready(but=who)
            if not others:
                raise self.deadlock()
            self._hand_over(self.next_of(others))
        who.until, who.where, who.site = None, "", NOWHERE

    def _hand_over(self, to: Partition) -> None:
        who = self.now
        self.now = to
        to.turn.release()
        who.turn.acquire()
        if self.failure is not None:
            raise StoppedError
        self.now = who

    def specialize(self, parts: list[tuple[Any, tuple[Any, ...]]], warps: list[int]) -> Any:
        """The first part in this partition, each other one in a partition of its own."""
        main = self.now
        threads = []
        for number, ((function, arguments), n_warps) in enumerate(
            zip(parts[1:], warps, strict=True), start=len(self.partitions)
        ):
            if number >= PARTITIONS // 2:
                raise MisuseError(f"more than {PARTITIONS // 2} partitions")
            name = f"partition {number} ({getattr(function, '__name__', 'a function')})"
            one = self.partition(number, name, n_warps)
            for mine, made in zip(main.ctas, one.ctas, strict=True):
                np.maximum(made.known, mine.known, out=made.known)
                made.known[made.number] = 1
            self.partitions.append(one)
            if self.log is not None:
                self.log.starts(one, main)
            threads.append(
                threading.Thread(target=self._run, args=(one, function, arguments), daemon=True)
            )
        for mine in main.ctas:
            mine.tick()
        for thread in threads:
            thread.start()
        workers = self.partitions[-len(threads) :] if threads else []
        try:
            function, arguments = parts[0]
            found = function(*arguments)
            self.wait_until(lambda: all(one.done for one in workers), "the other partitions")
        except BaseException as error:
            if self.failure is None:
                self.failure = error
            for one in workers:
                if one.turn.locked():
                    one.turn.release()
            for thread in threads:
                thread.join()
            if isinstance(error, StoppedError):
                raise self.failure from None
            raise
        for thread in threads:
            thread.join()
        for one in workers:
            for mine, made in zip(main.ctas, one.ctas, strict=True):
                np.maximum(mine.known, made.known, out=mine.known)
        return found

    def _run(self, who: Partition, function: Any, arguments: tuple[Any, ...]) -> None:
        who.turn.acquire()
        try:
            if self.failure is not None:
                return
            with quiet():
                function(*arguments)
            self.leave(who)
        except StoppedError as error:
            if self.failure is None:  # another program has failed
                self.failure = error
                self.partitions[0].turn.release()
            return
        except BaseException as error:
            self.failure = error
            self.partitions[0].turn.release()
            return
        finally:
            who.done = True
        others = self.ready(but=who)
        if others:
            self.now = self.next_of(others)
            self.now.turn.release()
        else:
            self.failure = self.deadlock()
            self.partitions[0].turn.release()

    def leave(self, who: Partition) -> None:
        for one in who.ctas:
            check_ended(one)
        self.unused = [one for one in self.unused if one.who not in who.ctas]

    def finish(self) -> None:
        """What must be true when a program ends."""
        self.leave(self.partitions[0])
        for barrier in self.barriers.values():
            if barrier.bytes:
                raise MisuseError(
                    f"the program ends with {barrier.bytes} bytes due at {barrier.name}",
                    IN_FLIGHT,
                    (("expects", barrier.site),),
                )
        known = np.max([one.known for each in self.partitions for one in each.ctas], axis=0)
        for core in self.cores.values():
            if core.worked > known[core.number]:
                raise MisuseError(
                    f"the program ends while {core.name} works, which nobody waited for",
                    "product in flight at the end",
                )
        for cells in (one for each in self.allocations for one in each.ctas):
            if site := cells.in_flight(known):
                raise MisuseError(
                    f"the program ends with a copy to {cells.what} nobody waited for",
                    IN_FLIGHT,
                    (("copies", site),),
                )
