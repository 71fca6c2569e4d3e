"""The programs of a launch: one runs at a time, and others go on where it may have to wait.

A program that touches no memory that another one waits for runs to its end. At atomics another one
may go on, and so it does where a program reads the same flag again and again.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence

from warpwatch.simulator.errors import DeadlockError, Site, here
from warpwatch.simulator.machine.order import Program, StoppedError

SWITCHES = 0.25  # how often another program goes on at an atomic
ATOMIC = 50  # plain reads of flags that count as one atomic which changes nothing
PATIENCE = 8 * ATOMIC  # looks at flags, until another program goes on
RESIDENT = 132  # programs that run at once; others begin when one of them ends
HOPELESS = 400 * ATOMIC  # looks by every program, without a change: nobody goes on


class Grid:
    """All programs of a launch.

    Args:
        programs: What runs, in the order in which they begin.
        body: Runs one of them to its end.
        running: A list whose last entry is the program that runs.
        chance: Draws who goes on.
    """

    def __init__(
        self,
        programs: Sequence[Program],
        body: Callable[[Program], None],
        running: list[Program],
        chance: random.Random,
    ) -> None:
        self._waiting = list(reversed(programs))  # not begun; the next one last
        self._body, self._running, self._chance = body, running, chance
        self._paused: list[tuple[Program, threading.Semaphore, Site]] = []
        self._done = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []
        self._active, self._lock = 0, threading.Lock()
        self._failure: BaseException | None = None
        self._idle = 0
        self._seen: set[tuple[int, int, object]] = set()  # looks since memory has changed

    def run(self) -> None:
        """Run all programs to their ends."""
        try:
            self._work(main=True)
        finally:
            for thread in self._threads:
                thread.join()
        if self._failure is not None:
            raise self._failure

    def _work(self, main: bool) -> None:
        """Begin programs while there are any; then let a paused one go on."""
        while self._failure is None:
            if self._paused and (self._chance.random() < 0.5 or not self._can_begin()):
                self._resume()
                # From here on another thread has the turn.
                if main:
                    self._done.acquire()
                return
            if not self._can_begin():
                break
            self._begin()
        if self._failure is not None:
            self._stop()
        with self._lock:
            active = self._active
        if main and active:
            self._done.acquire()
        elif not main and not active:
            self._done.release()

    def _can_begin(self) -> bool:
        return bool(self._waiting) and self._active < RESIDENT

    def _begin(self) -> None:
        one = self._waiting.pop()
        with self._lock:
            self._active += 1
        self._running.append(one)
        self._idle = 0
        try:
            self._body(one)
        except StoppedError:
            pass
        except BaseException as error:
            if self._failure is None:
                self._failure = error
        finally:
            with self._lock:
                self._active -= 1
            self._running.remove(one)
            self._idle = 0

    def _resume(self) -> None:
        place = self._chance.randrange(len(self._paused))
        one, turn, _ = self._paused.pop(place)
        self._running.remove(one)
        self._running.append(one)
        turn.release()

    def _stop(self) -> None:
        for _, turn, _ in self._paused:
            turn.release()
        self._paused = []

    def _pause(self, who: Program) -> None:
        """Another program goes on; ``who`` does later."""
        if not self._paused and not self._can_begin():
            return
        turn = threading.Semaphore(0)
        self._paused.append((who, turn, here()))
        if self._can_begin() and (len(self._paused) == 1 or self._chance.random() < 0.5):
            thread = threading.Thread(target=self._work, args=(False,), daemon=True)
            self._threads.append(thread)
            thread.start()
        else:
            others = [one for one in self._paused if one[1] is not turn]
            one = self._chance.choice(others)
            self._paused.remove(one)
            self._running.remove(one[0])
            self._running.append(one[0])
            one[1].release()
        turn.acquire()
        if self._failure is not None:
            raise StoppedError
        if self._running[-1] is not who:
            self._running.remove(who)
            self._running.append(who)

    def changed(self, who: Program, flag: bool) -> None:
        """``who`` has changed memory that others may wait for, maybe a ``flag``."""
        self._idle = 0
        self._seen.clear()
        if flag and self._chance.random() < SWITCHES:
            self._pause(who)

    def looked(self, who: Program, address: int, value: object, atomic: bool) -> None:
        """``who`` has read a ``value`` that may be a flag, and may do so again and again."""
        look = (id(who), address, value)
        if look not in self._seen:  # who finds something new gets on
            self._seen.add(look)
            return
        before = self._idle
        self._idle += ATOMIC if atomic else 1
        if self._idle // PATIENCE > before // PATIENCE:
            self._pause(who)
        if self._idle > HOPELESS * (1 + len(self._paused)):
            sites = [(f"program {one.place} looks", site) for one, _, site in self._paused]
            self._failure = DeadlockError(
                f"{1 + len(self._paused)} programs look for what nobody writes any more",
                sites=((f"program {who.place} looks", here()), *sites),
            )
            raise self._failure
