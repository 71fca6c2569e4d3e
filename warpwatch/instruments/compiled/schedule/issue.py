"""Issues the instructions of resident warps on one scheduler, clock by clock.

A scheduler issues at most one instruction a clock. Each warp is in order: the assembler wrote how
long it waits after each instruction, and what for (:mod:`.controls`). Pipes are taken for as long
as :mod:`.pipes` says. Barriers with constant numbers and products in flight are followed exactly.
Data that other warps copy is there when it is wanted. The four schedulers of an SM do the same, so
one of them is followed, with its share of the warps.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from . import pipes
from .pipes import SCHEDULERS, Step

_WARP = 32
_SETTLED = 2  # iterations until a loop is in its stride
_BOARDS = 6
# Far more than any piece of code issues in the iterations that are followed.
_MOST = 1_000_000


@dataclass
class Warp:
    """One warp that runs ``code`` ``times`` times; a loop goes on while others still run theirs.
    ``block`` is whom it meets at barriers, ``siblings`` how many warps of it run this code."""

    code: Sequence[Step]
    times: int
    block: int
    siblings: int
    at: int = 0
    ends: list[float] = field(default_factory=list)
    boards: list[float] = field(default_factory=lambda: [0.0] * _BOARDS)
    products: list[float] = field(default_factory=list)
    product: float = 0.0
    copies: list[float] = field(default_factory=list)
    copy: float = 0.0
    counted: tuple[list[float], ...] = field(default_factory=lambda: ([], []))

    @property
    def clocks(self) -> float:
        """Clocks of an iteration once the loop is in its stride; of code that runs once, until
        all that it began has ended."""
        if not self.ends:
            return 0.0
        if self.times == 1:
            return max(self.ends[0], self.product, *self.boards)
        first = min(_SETTLED, self.times - 1) - 1
        return (self.ends[self.times - 1] - self.ends[first]) / (self.times - 1 - first)

    def ready(self, now: float) -> float:
        """When its next instruction has all that it waits for, if not before ``now``."""
        return max([now, *(self.boards[one] for one in self.code[self.at].waits)])

    def advance(self, now: float) -> bool:
        """Go on to the next instruction. Returns whether it has now done all it was to do."""
        self.at = (self.at + 1) % len(self.code)
        if self.at:
            return False
        self.ends.append(now)
        return len(self.ends) == self.times

    @property
    def goes_on(self) -> bool:
        """Whether it has a next instruction: of code that runs once only the first time."""
        return self.times > 1 or not self.ends


def clocks(warps: Sequence[Warp]) -> list[float]:
    """Run all ``warps`` together.

    Args:
        warps: Those of one scheduler.

    Returns:
        :attr:`Warp.clocks` of each.

    Raises:
        ValueError: They do not come to an end.
    """
    _Scheduler(warps).run()
    return [warp.clocks for warp in warps]


class _Scheduler:
    """``_free`` says when each pipe is free again. The queue holds when a warp may go on, since
    when it has wanted to (the longest first), and its number."""

    def __init__(self, warps: Sequence[Warp]) -> None:
        self._warps = warps
        self._free = [0.0] * pipes.PIPES
        self._slot = 0.0
        self._queue = [(float(i), float(i), i) for i, warp in enumerate(warps) if warp.code]
        self._running = len(self._queue)
        self._parked: dict[tuple[int, int], list[int]] = {}
        self._arrived: dict[tuple[int, int], int] = {}

    def run(self) -> None:
        heapq.heapify(self._queue)
        for _ in range(_MOST):
            if not self._running:
                return
            if not self._queue:
                # Who should come to this barrier has other code: it comes in time.
                self._release(next(iter(self._parked)), self._slot)
            ready, since, i = heapq.heappop(self._queue)
            now = max(ready, self._slot)
            step = self._warps[i].code[self._warps[i].at]
            room = pipes.BACKLOG if step.pipe in pipes.QUEUED else 0.0
            wanted = self._free[step.pipe] - room
            if step.pipe and wanted > now:
                heapq.heappush(self._queue, (wanted, since, i))
                continue
            self._slot = now + 1
            self._issue(i, step, now)
        raise ValueError(f"code of {len(self._warps)} warps does not come to an end")

    def _issue(self, i: int, step: Step, now: float) -> None:
        warp = self._warps[i]
        begun = now
        if step.pipe:
            begun = max(now, self._free[step.pipe])
            self._free[step.pipe] = begun + step.busy
        end = begun + step.latency
        if step.written is not None:
            warp.boards[step.written] = max(warp.boards[step.written], end)
        if step.read is not None:
            warp.boards[step.read] = max(warp.boards[step.read], begun + pipes.READ)
        if step.counter is not None:
            # What one counter counts ends in order.
            ends = warp.counted[step.counter]
            ends.append(max(end, ends[-1] if ends else 0.0))
        following = now + step.stall
        if step.action:
            following = max(following, self._act(warp, step, begun))
            if step.action in (pipes.SYNC, pipes.ARRIVE) and not self._meet(i, step, now):
                return
        self._running -= warp.advance(following)
        self._push(i, following)

    def _act(self, warp: Warp, step: Step, begun: float) -> float:
        """What is begun or waited for in addition to the instruction itself. Returns until when."""
        if step.action == pipes.PRODUCT:
            warp.product = begun + step.busy + step.latency
            if step.number:
                warp.products.append(warp.product)
        elif step.action == pipes.COPY:
            warp.copy = max(warp.copy, begun + step.latency)
        elif step.action == pipes.COMMIT:
            warp.copies.append(warp.copy)
        elif step.action == pipes.PRODUCTS_DONE and len(warp.products) > step.number:
            return warp.products[-1 - step.number]
        elif step.action == pipes.COPIES_DONE and len(warp.copies) > step.number:
            return warp.copies[-1 - step.number]
        elif step.action == pipes.COUNTED:
            ends = [warp.counted[one] for one, _ in step.left]
            left = [count for _, count in step.left]
            found = zip(ends, left, strict=True)
            return max([begun, *(one[-1 - count] for one, count in found if len(one) > count)])
        elif step.action == pipes.SYNC:
            return begun + _meeting(warp, step)
        return begun

    def _meet(self, i: int, step: Step, now: float) -> bool:
        """Come to a barrier. Returns whether the warp goes on."""
        warp = self._warps[i]
        key = (warp.block, step.number)
        wanted = (step.threads // _WARP or warp.siblings) // SCHEDULERS
        if wanted <= 1:
            return True
        self._arrived[key] = self._arrived.get(key, 0) + 1
        if self._arrived[key] >= wanted:
            self._release(key, now + _meeting(warp, step))
            return True
        if step.action == pipes.ARRIVE:
            return True
        self._running -= warp.advance(now)
        if warp.goes_on:
            self._parked.setdefault(key, []).append(i)
        return False

    def _release(self, key: tuple[int, int], now: float) -> None:
        for i in self._parked.pop(key, ()):
            self._push(i, now)
        self._arrived.pop(key, None)

    def _push(self, i: int, now: float) -> None:
        if self._warps[i].goes_on:
            ready = self._warps[i].ready(now)
            heapq.heappush(self._queue, (ready, ready, i))


def _meeting(warp: Warp, step: Step) -> float:
    """Clocks of a barrier after its last warp has come."""
    return step.latency + step.each_warp * (step.threads // _WARP or warp.siblings)
