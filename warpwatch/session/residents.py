"""Processes of two versions that stay on the card and are visited in turn, round after round.

All processes of a batch start side by side, import and compile what they need, and are then
visited one at a time: only one of them is at work on a card while anything is timed there. A pair
is a process of each version; its value is the middle of its visits. What differs between processes
(where their memory lies) is met by more pairs, what differs between visits (the card's clock) by
more rounds. Where a host has several cards alike, pairs are spread over them. Both processes of a
pair are on one card, so what differs between cards is in no pair's ratio.
"""

from __future__ import annotations

import functools
import math
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

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
# A process that waits holds its context and its inputs; one that checks, the truth in fp64 too.
BYTES_EACH = 4 << 30
BYTES_CHECKING = 16 << 30


def most_together(
    cores: int | None = None, memory: int | None = None, cards: int | None = None
) -> int:
    """Pairs of processes that this machine can hold at a time: a core for each process while they
    start, and room for what they keep on their card.

    Args:
        cores: of this machine; those that this process may use without.
        memory: of a card, in bytes; what the driver says without, None where it says nothing.
        cards: that pairs are spread over; those of one kind without.

    Returns:
        From 2 to 8 a card.

    Examples:
        >>> most_together(cores=16, memory=80 << 30, cards=1)
        8
        >>> most_together(cores=16, memory=24 << 30, cards=1)
        3
        >>> most_together(cores=32, memory=24 << 30, cards=2)
        6
    """
    cores = cores or len(os.sched_getaffinity(0))
    memory = memory or min((one.memory for one in clocks.cards()), default=None)
    cards = cards or max(1, len(clocks.alike()))
    room = 8 if memory is None else memory // (2 * BYTES_EACH)
    return max(2, min(8 * cards, cores // 2, room * cards))


def most_checking(memory: int | None = None) -> int:
    """Pairs of processes that may hold answers against the reference on a card at a time.

    Args:
        memory: of the card, in bytes; what the driver says without.

    Example:
        >>> most_checking(80 << 30), most_checking(24 << 30)
        (2, 1)
    """
    memory = memory or min((one.memory for one in clocks.cards()), default=0)
    return max(1, memory // (2 * BYTES_CHECKING))


@dataclass
class _Pair:
    """A process of each version on one card, with the outcomes of its visits."""

    card: str
    sides: Sequence[str]  # in the order of their first visit
    sessions: Mapping[str, Session]
    visits: dict[str, list[Outcomes]] = field(init=False)

    def __post_init__(self) -> None:
        self.visits = {side: [] for side in self.sides}


class Residents:
    """Measures pairs of two versions in processes that stay for a batch of pairs.

    With ``counters`` each process reads them after its last visit: a profiler in a process makes
    what the host does slower. After ``ends``, a time of ``time.monotonic``, or once ``stop`` is
    set, no further round begins. Answers are checked in any case: a wrong one has no time.
    ``cards`` are values of ``CUDA_VISIBLE_DEVICES``, all of one kind without.
    """

    def __init__(
        self,
        versions: Mapping[str, Version],
        stop: threading.Event | None = None,
        counters: bool = False,
        ends: float = math.inf,
        cards: Sequence[str] | None = None,
    ) -> None:
        self._versions = versions
        self._stop = stop or threading.Event()
        self._counters = counters
        self._ends = ends
        self.cards = list(clocks.alike() if cards is None else cards) or [""]
        self.base_times: dict[str, dict[str, list[float]]] = {card: {} for card in self.cards}
        self._given = 0  # pairs so far: each card has its turn
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
        numbers = range(self._given, self._given + len(turns))
        self._given += len(turns)
        cards = [self.cards[number % len(self.cards)] for number in numbers]
        batch = [
            _Pair(card, sides, {side: self._session(side, card) for side in sides})
            for card, sides in zip(cards, turns, strict=True)
        ]
        try:
            self._start(batch, names)
            done = 0
            left = list(names)
            while left and done < MOST_ROUNDS and not (done and self._over()):
                self._on_each_card(batch, functools.partial(self._round, done % 2 == 1, left))
                done += 1
                if done >= ROUNDS:
                    left = [
                        name for name in left if wants_more([one.visits for one in batch], name)
                    ]
            self._check(batch, names)
            if self._counters and not self._over():
                self._on_each_card(batch, functools.partial(self._count, names))
            self._note_cards(batch, names)
            # A wrong answer has no time, whoever gave it.
            return [
                {
                    side: {**_merged(found), **self._wrong[side]}
                    for side, found in one.visits.items()
                }
                for one in batch
            ]
        finally:
            sessions = _sessions(batch)
            with ThreadPoolExecutor(len(sessions)) as pool:  # a context takes long to end
                list(pool.map(Session.discard, sessions))

    def _round(self, backwards: bool, names: Sequence[str], pairs: Sequence[_Pair]) -> None:
        for pair in reversed(pairs) if backwards else pairs:
            for side in reversed(pair.sides) if backwards else pair.sides:
                pair.visits[side].append(self._visit(pair.sessions[side], ("time",), names))

    def _count(self, names: Sequence[str], pairs: Sequence[_Pair]) -> None:
        for pair in pairs:
            for side, session in pair.sessions.items():
                pair.visits[side].append(self._visit(session, ("count",), names))

    def _on_each_card(
        self, batch: Sequence[_Pair], work: Callable[[Sequence[_Pair]], object]
    ) -> None:
        """Do ``work`` with the pairs of each card, on all cards at a time."""
        by_card: dict[str, list[_Pair]] = {}
        for pair in batch:
            by_card.setdefault(pair.card, []).append(pair)
        self._side_by_side(batch, [functools.partial(work, mine) for mine in by_card.values()])

    def _side_by_side(self, batch: Sequence[_Pair], jobs: Sequence[Callable[[], object]]) -> None:
        with ThreadPoolExecutor(len(jobs)) as pool:
            try:
                for one in [pool.submit(job) for job in jobs]:
                    one.result()
            except BaseException:  # Ctrl-C: no process outlives who asked
                for session in _sessions(batch):
                    session.stop()
                raise

    def _note_cards(self, batch: Sequence[_Pair], names: Sequence[str]) -> None:
        for pair in batch:
            side = next(iter(self._wrong))
            for name in names:
                times = _times(pair.visits[side], name)
                if times:
                    kept = self.base_times[pair.card].setdefault(name, [])
                    kept.append(statistics.median(times))

    def _over(self) -> bool:
        return self._stop.is_set() or time.monotonic() > self._ends

    def _session(self, side: str, card: str) -> Session:
        request = {"mode": "staying", "limits": LIMITS}
        environment = dict(self._versions[side].environment)
        if card:
            environment["CUDA_VISIBLE_DEVICES"] = card
        return Session(request, environment=environment, stays=True)

    def _start(self, batch: Sequence[_Pair], names: Sequence[str]) -> None:
        """Start all processes, and let each make its inputs and load its code. A kernel that is not
        compiled yet is compiled by one process a version only: the others find it on disk."""
        make_ready(_sessions(batch))
        shares = [names[i :: len(batch)] for i in range(len(batch))]
        for of_pair in (shares, [names] * len(batch)):
            self._side_by_side(
                batch,
                [
                    functools.partial(self._visit, session, ("ready",), share)
                    for pair, share in zip(batch, of_pair, strict=True)
                    for session in pair.sessions.values()
                ],
            )

    def _visit(self, session: Session, steps: Sequence[Step], names: Sequence[str]) -> Outcomes:
        session.request["steps"] = list(steps)
        return session.run(names)

    def _check(self, batch: Sequence[_Pair], names: Sequence[str]) -> None:
        """Hold the answers of the first processes of all against the reference, after they were
        timed: on the same inputs a kernel's error is the same in every process. Each process checks
        its share of the workloads, and all at the same time, since nothing is timed."""
        if self._checked:
            return
        self._checked = True
        checking = batch[: most_checking() * len(self.cards)]

        def check(pair: _Pair, side: str, share: Sequence[str]) -> None:
            found = self._visit(pair.sessions[side], ("check", "again"), share)
            pair.visits[side].append(found)
            self._wrong[side] |= {name: one for name, one in found.items() if one.status != "ok"}

        self._side_by_side(
            checking,
            [
                functools.partial(check, pair, side, names[first :: len(checking)])
                for first, pair in enumerate(checking)
                for side in pair.sides
            ],
        )


def _sessions(batch: Sequence[_Pair]) -> list[Session]:
    return [session for pair in batch for session in pair.sessions.values()]


def apart(base_times: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, float]:
    """How much longer each card takes for the same calls than the cards do on average.

    Args:
        base_times: By card and workload the times of the base's processes, in us.

    Returns:
        The median over workloads as a share, by card; empty where fewer than two cards measured.

    Example:
        >>> apart({"0": {"w": [100.0, 100.0]}, "1": {"w": [102.0]}})
        {'0': -0.0099..., '1': 0.0099...}
    """
    if sum(bool(times) for times in base_times.values()) < 2:
        return {}
    logs: dict[str, dict[str, float]] = {}
    for card, times in base_times.items():
        for name, row in times.items():
            logs.setdefault(name, {})[card] = math.log(statistics.median(row))
    shares: dict[str, list[float]] = {}
    for of_card in logs.values():
        if len(of_card) == len(base_times):
            mean = statistics.fmean(of_card.values())
            for card, one in of_card.items():
                shares.setdefault(card, []).append(math.exp(one - mean) - 1)
    return {card: statistics.median(row) for card, row in shares.items()}


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
