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

from warpwatch.simulator.errors import NOWHERE, DeadlockError, MisuseError, Site, here
from warpwatch.simulator.machine.barriers import Barrier, Meeting
from warpwatch.simulator.machine.races import PARTITIONS, SOMEBODIES, Cells, Partition, Product
from warpwatch.simulator.machine.regions import Partitioning
from warpwatch.simulator.timeline.log import Log

IN_FLIGHT = "copy in flight at the end"
YIELDS = 0.25  # how often others go on where nobody must wait


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
    ):
        self.place, self.grid = place, grid
        self.chance = random.Random(seed)
        self.favours = self.chance.random() < 0.5
        self.ranks = self.chance.sample(range(PARTITIONS // 2), PARTITIONS // 2)
        self.partitions = [Partition(0, "the default partition", warps, self.name_of)]
        self.now = self.partitions[0]
        self.barriers: dict[tuple[int, int], Barrier] = {}
        self.ended: list[Barrier] = []
        self.cores: dict[int, Partition] = {}
        self.meetings: dict[int, Meeting] = {}
        self.allocations: list[Cells] = []
        self.names: dict[int, str] = {0: self.now.name}
        self.unused: list[Product] = []  # that started, and of whose value nobody knows yet
        self.failure: BaseException | None = None
        self.parts = {} if parts is None else parts
        self.others: Others | None = None  # the programs of its launch
        self.log: Log | None = None  # where it is noted what it does
        self.strict = False  # whether barriers want a fence behind their init

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

    # Barriers.

    def new_barrier(self, key: tuple[int, int], count: int, name: str) -> None:
        if key in self.barriers:
            raise MisuseError(f"{name} is initialised twice")
        somebody = PARTITIONS + len(self.barriers) + len(self.ended)
        if somebody >= SOMEBODIES:
            raise MisuseError(f"more than {SOMEBODIES - PARTITIONS} barriers")
        self.names[somebody] = f"a copy to {name}"
        self.barriers[key] = Barrier(somebody, count, name)
        self.barriers[key].log = self.log

    def forget(self, key: tuple[int, int]) -> None:
        """A barrier is invalidated; another one may be initialised in its place."""
        self.ended.append(self.barriers.pop(key))

    def core_of(self, who: Partition) -> Partition:
        """The tensor core, as it works for a partition."""
        if who.number not in self.cores:
            number = PARTITIONS // 2 + who.number
            name = f"the tensor core for {who.name}"
            self.cores[who.number] = Partition(number, name, 1, self.name_of)
            self.names[number] = name
        return self.cores[who.number]

    def site(self) -> Site:
        """The line that runs."""
        return here()

    def wait(self, barrier: Barrier, parity: int) -> None:
        if parity not in (0, 1):
            raise MisuseError(f"expected 0 or 1 as the phase of {barrier.name}, got {parity}")
        self.wait_until(lambda: barrier.phases % 2 != parity, f"phase {parity} of {barrier.name}")
        barrier.learn(self.now, parity)

    def meet(self, number: int, threads: int, stays: bool) -> None:
        meeting = self.meetings.setdefault(number, Meeting(number))
        who = self.now
        if self.log is not None:
            self.log.arrives(meeting, who, "arrive at")
        np.maximum(meeting.coming, who.known, out=meeting.coming)
        who.tick()
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
            np.maximum(who.known, meeting.known, out=who.known)
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
        for cells, region in self.now.unfenced:
            cells.fence(region, self.now)
        self.now.unfenced = []
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
            one = Partition(number, name, n_warps, self.name_of)
            np.maximum(one.known, main.known, out=one.known)
            one.known[number] = 1
            self.names[number] = name
            self.partitions.append(one)
            if self.log is not None:
                self.log.starts(one, main)
            threads.append(
                threading.Thread(target=self._run, args=(one, function, arguments), daemon=True)
            )
        main.tick()
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
                one.turn.release()
            for thread in threads:
                thread.join()
            if isinstance(error, StoppedError):
                raise self.failure from None
            raise
        for thread in threads:
            thread.join()
        for one in workers:
            np.maximum(main.known, one.known, out=main.known)
        return found

    def _run(self, who: Partition, function: Any, arguments: tuple[Any, ...]) -> None:
        who.turn.acquire()
        try:
            if self.failure is not None:
                return
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
        self.unused = [one for one in self.unused if one.who is not who]

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
        known = np.max([one.known for one in self.partitions], axis=0)
        for core in self.cores.values():
            if core.worked > known[core.number]:
                raise MisuseError(
                    f"the program ends while {core.name} works, which nobody waited for",
                    "product in flight at the end",
                )
        for cells in self.allocations:
            if site := cells.in_flight(known):
                raise MisuseError(
                    f"the program ends with a copy to {cells.what} nobody waited for",
                    IN_FLIGHT,
                    (("copies", site),),
                )
