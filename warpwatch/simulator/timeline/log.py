"""Notes what a program does, each word with a beginning and an end.

Nothing here is measured. A word takes one step, a product four, a copy eight. Who waits goes on
when the last of those has come who were waited for. So the picture shows who waits for whom, and
no time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from warpwatch.simulator.errors import Site, here

WORD, PRODUCT, COPY = 1, 4, 8  # steps
COPIES = "copy engine"


@dataclass(frozen=True)
class Span:
    """Something that one ``track`` does from step ``begin`` to step ``end``.

    ``kind`` is ``word``, ``wait``, ``product``, ``copy in``, ``copy out`` or ``stuck``.
    """

    track: str
    kind: str
    what: str
    begin: int
    end: int
    site: Site


class Log:
    """What one program does.

    Args:
        launch: The kernel's name.
    """

    def __init__(self, launch: str) -> None:
        self.launch = launch
        self.failed = False  # whether its launch has a fault
        self.spans: list[Span] = []
        self._now: dict[int, int] = {}  # by partition
        self._free: dict[str, int] = {}  # when an engine can begin, by its track
        self._coming: dict[int, int] = {}  # by barrier: when what its phase waits for has come
        self._done: dict[int, list[int]] = {}  # when its phases were complete
        self._ends: dict[int, int] = {}  # by product or copy

    @property
    def tracks(self) -> list[str]:
        """Everybody who does something, in the order of their first."""
        found = dict.fromkeys(one.track for one in self.spans)
        return [*(one for one in found if one != COPIES), *([COPIES] if COPIES in found else [])]

    def _step(self, who: Any, kind: str, what: str, until: int | None = None) -> int:
        begin = self._now.get(who.number, 0)
        end = begin + WORD if until is None else max(begin, until)
        if end > begin:
            self.spans.append(Span(who.name, kind, what, begin, end, here()))
        self._now[who.number] = end
        return end

    def starts(self, who: Any, behind: Any) -> None:
        """A partition begins where another one is."""
        self._now[who.number] = self._now.get(behind.number, 0)

    def word(self, who: Any, what: str) -> None:
        """A partition does something by itself."""
        self._step(who, "word", what)

    def arrives(self, barrier: Any, who: Any, what: str) -> None:
        """A partition arrives at a barrier."""
        end = self._step(who, "word", f"{what} {barrier.name}")
        self._comes(barrier, end)

    def _comes(self, barrier: Any, end: int) -> None:
        self._coming[id(barrier)] = max(self._coming.get(id(barrier), 0), end)

    def completes(self, barrier: Any) -> None:
        """A phase of a barrier is complete."""
        self._done.setdefault(id(barrier), []).append(self._coming.pop(id(barrier), 0))

    def waits(self, barrier: Any, phase: int, who: Any) -> None:
        """A partition waited for the first ``phase`` phases of a barrier."""
        done = self._done.get(id(barrier), [])
        until = max(done[:phase], default=0)
        self._step(who, "wait", f"wait for phase {(phase - 1) % 2} of {barrier.name}", until)

    def _engine(self, track: str, who: Any, kind: str, what: str, takes: int) -> int:
        begin = max(self._step(who, "word", what), self._free.get(track, 0))
        self.spans.append(Span(track, kind, what, begin, begin + takes, here()))
        self._free[track] = begin + takes
        return begin + takes

    def copies_in(self, barrier: Any, who: Any, what: str) -> None:
        """A copy to shared memory, which a barrier waits for."""
        self._comes(barrier, self._engine(COPIES, who, "copy in", f"copy to {what}", COPY))

    def copies_out(self, who: Any, copy: Any, what: str) -> None:
        """A copy of shared memory to global memory."""
        end = self._engine(COPIES, who, "copy out", f"copy of {what} out", COPY)
        self._ends[id(copy)] = end

    def multiplies(self, who: Any, product: Any) -> None:
        """A product of the matrix unit."""
        track = f"{who.name}: matrix unit"
        self._ends[id(product)] = self._engine(track, who, "product", "product", PRODUCT)

    def awaits(self, who: Any, what: str, ended: list[Any]) -> None:
        """A partition waited for products or copies."""
        until = max((self._ends.pop(id(one), 0) for one in ended), default=0)
        self._step(who, "wait", f"wait for {what}", until)

    def stuck(self, waiting: list[Any]) -> None:
        """Nobody goes on: partitions wait until the end of the picture."""
        last = max((one.end for one in self.spans), default=0) + COPY
        for who in waiting:
            begin = self._now.get(who.number, 0)
            self.spans.append(
                Span(who.name, "stuck", f"waits for {who.where}", begin, last, who.site)
            )
