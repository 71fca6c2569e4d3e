"""Processes of two versions that stay on the card and are visited in turn, round after round.

All processes of a batch start side by side, import and compile what they need, and are then
visited one at a time: only one of them is at work while anything is timed. A pair is a process of
each version; its value is the middle of its visits. What differs between processes (where their
memory lies) is met by more pairs, what differs between visits (the card's clock) by more rounds.
"""

from __future__ import annotations

import math
import os
import statistics
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from warpwatch.instruments.gpu.card import clocks
from warpwatch.instruments.gpu.staying import Step
from warpwatch.instruments.outcome import Outcome

from .session import Session, make_ready
from .versions import Version

Outcomes = Mapping[str, Outcome]
Turns = Sequence[Sequence[str]]  # for each pair its sides, in the order of their first visit

# Visits of a pair: as many at least, so that what lies between two rounds is known, and at most.
ROUNDS, MOST_ROUNDS = 2, 4
# A further round is worth its time while visits of one process add more than this share to the
# variance of a pair's difference.
WITHIN_SHARE = 0.25
# Short visits: the median of more samples of one process says little about the next process.
LIMITS = {"target": 0.002, "min_samples": 11, "max_samples": 31, "seconds": 0.5,
          "warm_up_seconds": 0.02}  # fmt: skip
LATENCY = "latency_cold"
# A process that waits holds its context and its inputs.
BYTES_EACH = 4 << 30


def most_together(cores: int | None = None, memory: int | None = None) -> int:
    """Pairs of processes that this machine can hold at a time: a core for each process while they
    start, and room for what they keep on the card.

    Args:
        cores: of this machine; those that this process may use without.
        memory: of the card, in bytes; what the driver says without, None where it says nothing.

    Returns:
        From 2 to 8.

    Examples:
        >>> most_together(cores=16, memory=80 << 30)
        8
        >>> most_together(cores=16, memory=24 << 30)
        3
    """
    cores = cores or len(os.sched_getaffinity(0))
    memory = memory or min((size for _, size in clocks.cards()), default=None)
    room = 8 if memory is None else memory // (2 * BYTES_EACH)
    return max(2, min(8, cores // 2, room))


class Residents:
    """Measures pairs of two versions in processes that stay for a batch of pairs.

    With ``counters`` each process reads them after its last visit: a profiler in a process makes
    what the host does slower. After ``ends``, a time of ``time.monotonic``, or once ``stop`` is
    set, no further round begins. Answers are checked in any case: a wrong one has no time.
    """

    def __init__(
        self,
        versions: Mapping[str, Version],
        stop: threading.Event | None = None,
        counters: bool = False,
        ends: float = math.inf,
    ) -> None:
        self._versions = versions
        self._stop = stop or threading.Event()
        self._counters = counters
        self._ends = ends
        self._checked = False
        self._wrong: dict[str, dict[str, Outcome]] = {side: {} for side in versions}

    def measure(self, turns: Turns, names: Sequence[str]) -> list[dict[str, dict[str, Outcome]]]:
        """The outcomes of one pair a turn, of each side by workload.

        Args:
            turns: The sides of each pair in the order of their first visit.
            names: The workloads.

        Returns:
            For each pair, by side and workload: a time a round, and what else was read once.
        """
        pairs = [{side: self._session(side) for side in sides} for sides in turns]
        visits: list[dict[str, list[Outcomes]]] = [{side: [] for side in sides} for sides in turns]
        try:
            self._start(pairs, names)
            done = 0
            left = list(names)
            while left and done < MOST_ROUNDS and not (done and self._over()):
                order = list(zip(pairs, visits, turns, strict=True))
                for pair, visited, sides in order if done % 2 == 0 else reversed(order):
                    for side in sides if done % 2 == 0 else reversed(sides):
                        visited[side].append(self._visit(pair[side], ("time",), left))
                done += 1
                if done >= ROUNDS:
                    left = [name for name in left if wants_more(visits, name)]
            self._check(pairs[0], visits[0], names)
            if self._counters and not self._over():
                for pair, visited in zip(pairs, visits, strict=True):
                    for side, session in pair.items():
                        visited[side].append(self._visit(session, ("count",), names))
            # A wrong answer has no time, whoever gave it.
            return [
                {side: {**_merged(found), **self._wrong[side]} for side, found in one.items()}
                for one in visits
            ]
        finally:
            sessions = [session for pair in pairs for session in pair.values()]
            with ThreadPoolExecutor(len(sessions)) as pool:  # a context takes long to end
                list(pool.map(Session.discard, sessions))

    def _over(self) -> bool:
        return self._stop.is_set() or time.monotonic() > self._ends

    def _session(self, side: str) -> Session:
        request = {"mode": "staying", "limits": LIMITS}
        return Session(request, environment=self._versions[side].environment, stays=True)

    def _start(self, pairs: Sequence[Mapping[str, Session]], names: Sequence[str]) -> None:
        """Start all processes, and let each make its inputs and load its code. A kernel that is not
        compiled yet is compiled by one process a version only: the others find it on disk."""
        sessions = [session for pair in pairs for session in pair.values()]
        make_ready(sessions)
        shares = [names[i :: len(pairs)] for i in range(len(pairs))]
        with ThreadPoolExecutor(len(sessions)) as pool:
            try:
                for of_pair in (shares, [names] * len(pairs)):
                    running = [
                        pool.submit(self._visit, session, ("ready",), share)
                        for pair, share in zip(pairs, of_pair, strict=True)
                        for session in pair.values()
                    ]
                    for one in running:
                        one.result()
            except BaseException:  # Ctrl-C: no process outlives who asked
                for session in sessions:
                    session.stop()
                raise

    def _visit(self, session: Session, steps: Sequence[Step], names: Sequence[str]) -> Outcomes:
        session.request["steps"] = list(steps)
        return session.run(names)

    def _check(
        self,
        pair: Mapping[str, Session],
        visited: Mapping[str, list[Outcomes]],
        names: Sequence[str],
    ) -> None:
        """Hold the answers of the first pair of all against the reference, after it was timed: on
        the same inputs a kernel's error is the same in every process."""
        if self._checked:
            return
        self._checked = True
        for side, session in pair.items():
            found = self._visit(session, ("check", "again"), names)
            visited[side].append(found)
            self._wrong[side] = {name: one for name, one in found.items() if one.status != "ok"}


def wants_more(visits: Sequence[Mapping[str, Sequence[Outcomes]]], name: str) -> bool:
    """Whether a further round would make the pairs of ``name`` better known.

    Visits of one process differ by the clock of the card, and processes differ by where their
    memory lies. A pair's variance has both: what visits add to it falls with their number.

    Args:
        visits: By pair and side the outcomes of each round.
        name: The workload.

    Returns:
        True where visits add more than a quarter.
    """
    rows = []
    for sides in visits:
        times = {side: _times(found, name) for side, found in sides.items()}
        base, head = times.get("base", []), times.get("head", [])
        if len(base) == len(head) and len(base) >= 2:
            rows.append(np.log(np.asarray(head)) - np.log(np.asarray(base)))
    if len(rows) < 2:
        return False
    rounds = len(rows[0])
    within = float(np.mean([row.var(ddof=1) for row in rows if len(row) == rounds])) / rounds
    whole = float(np.var([row.mean() for row in rows], ddof=1))
    return within > WITHIN_SHARE * whole


def _times(found: Iterable[Outcomes], name: str) -> list[float]:
    samples = [one[name].samples.get(LATENCY) for one in found if name in one]
    return [statistics.median(row) for row in samples if row]


def _merged(found: Sequence[Outcomes]) -> dict[str, Outcome]:
    """The outcome of all visits: the first that went wrong, else the samples of all, of times the
    median of each visit."""
    merged: dict[str, Outcome] = {}
    for name in dict.fromkeys(name for one in found for name in one):
        mine = [one[name] for one in found if name in one]
        wrong = next((one for one in mine if one.status != "ok"), None)
        if wrong is not None:
            merged[name] = wrong
            continue
        samples: dict[str, tuple[float, ...]] = {}
        for one in mine:
            for metric, row in one.samples.items():
                if metric == LATENCY:
                    row = (statistics.median(row),)
                samples[metric] = (*samples.get(metric, ()), *row)
        details = dict.fromkeys(one.detail for one in mine if one.detail)
        merged[name] = Outcome(name, "ok", "; ".join(details), samples)
    return merged
