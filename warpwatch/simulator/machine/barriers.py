"""Barriers, and what those who wait at them learn."""

from __future__ import annotations

import numpy as np

from warpwatch.simulator.errors import MisuseError, here
from warpwatch.simulator.machine.races import SOMEBODIES, Partition
from warpwatch.simulator.timeline.log import Log


class Barrier:
    """An mbarrier: phases of ``count`` arrivals and of as many bytes as were expected."""

    def __init__(self, somebody: int, count: int, name: str, somebodies: int = SOMEBODIES) -> None:
        self.somebody, self.count, self.name = somebody, count, name
        self.made: tuple[int, int] | None = None  # which CTA's partition made it, and when
        self.arrived = self.bytes = self.phases = 0
        self.fenced = False  # the copy engine may see it
        self.log: Log | None = None
        self.site = here()  # where its arrivals or bytes were last spoken of
        self.known = [np.zeros(somebodies, np.int64)]  # what who waited for a phase learns
        self.coming = np.zeros(somebodies, np.int64)  # what arrivals of this phase know

    def arrive(self, who: Partition, count: int = 1, expected: int = 0) -> None:
        np.maximum(self.coming, who.known, out=self.coming)
        self.site = here()
        self.arrived += count
        self.bytes += expected
        if self.arrived > self.count:
            raise MisuseError(
                f"{who.name} arrives at {self.name}, which has all {self.count} arrivals"
            )
        who.tick()
        if self.log is not None:
            self.log.arrives(self, who, "expect bytes at" if expected else "arrive at")
        self.complete()

    def copied(self, size: int) -> None:
        self.bytes -= size
        self.complete()

    def complete(self) -> None:
        if self.arrived < self.count or self.bytes != 0:
            return
        self.phases += 1
        self.arrived = 0
        if self.log is not None:
            self.log.completes(self)
        known = np.maximum(self.known[-1], self.coming)
        known[self.somebody] = self.phases
        self.known.append(known)
        self.coming[:] = 0

    def missed(self, who: Partition, parity: int) -> str:
        """Say so where the phase that is waited for, and another one, are complete already."""
        phase = int(who.known[self.somebody])
        phase += phase % 2 == parity
        if self.phases % 2 == parity and self.phases > phase:
            return ", which it missed: the next phase can be complete before this wait looks"
        return ""

    def learn(self, who: Partition, parity: int) -> None:
        """``who`` knows what the phase tells that it waited for, the first it can be: later ones
        may not have come in another order."""
        phase = int(who.known[self.somebody])
        phase += phase % 2 == parity
        np.maximum(who.known, self.known[phase], out=who.known)
        if self.log is not None:
            self.log.waits(self, phase, who)


class Meeting:
    """A barrier of the multiprocessor (bar.sync, bar.arrive), by its number."""

    def __init__(self, number: int, ctas: int = 1) -> None:
        self.name = f"named barrier {number}"
        self.threads = self.times = 0
        # Each CTA of a cluster has its own.
        self.coming = np.zeros((ctas, ctas * SOMEBODIES), np.int64)
        self.known = np.zeros((ctas, ctas * SOMEBODIES), np.int64)
