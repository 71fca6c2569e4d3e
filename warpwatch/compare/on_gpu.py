"""Judges two versions on this machine's GPU: time, answer, memory and counters of one duel."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from warpwatch.config import package as configuration
from warpwatch.instruments.counters import ncu
from warpwatch.instruments.gpu.card import clocks
from warpwatch.instruments.outcome import Outcome
from warpwatch.judge.model.directions import Directions
from warpwatch.judge.model.thresholds import Thresholds
from warpwatch.judge.pairs import prior
from warpwatch.judge.pairs.plan import Plan
from warpwatch.judge.pairs.run_verdict import Judged, by_their_length
from warpwatch.judge.results.assembly import assemble
from warpwatch.judge.results.folders import list_folders, read_folders
from warpwatch.judge.results.processes import Workers
from warpwatch.judge.statistics.paired import Prior
from warpwatch.session import utilization, versions
from warpwatch.session.residents import Residents, apart, most_together

from . import paired_runs

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Asked:
    """How to measure. ``folders`` hold results of earlier commits, which say how noisy series are;
    without ``counters`` only time, answer and memory are judged."""

    plan: Plan
    seconds: float
    seed: int = 0
    counters: bool = True
    folders: tuple[Path, ...] = ()


def judge(
    base: versions.Version,
    head: versions.Version,
    names: Sequence[str],
    limits: Thresholds,
    asked: Asked,
    tell: Tell,
) -> list[Judged]:
    """Time, answer and memory in processes that stay, counters in the same processes where the
    driver lets them; else in those of ``ncu``, with what is left of the time."""
    if not names:
        return []
    sides = {"base": base, "head": head}
    ends = time.monotonic() + asked.seconds
    with _stopped_by_signals(tell) as stop:
        staying = Residents(sides, stop, asked.counters, ends)
        duel = paired_runs.Duel(
            "latency",
            staying.measure,
            asked.plan,
            asked.seconds,
            asked.seed,
            together=most_together(cards=len(staying.cards)),
            cards=len(staying.cards),
            priors=_priors(asked.folders),
            stop=stop,
        )
        judged = paired_runs.fight(duel, names, limits, tell)
        tell_cards(staying, tell)
        read = any(one.metric in paired_runs.COUNTERS for one in judged)
        if read or not asked.counters or stop.is_set():
            return by_their_length(judged)

        def count(side: paired_runs.Side, workloads: Sequence[str]) -> Mapping[str, Outcome]:
            return utilization.by_ncu(workloads, environment=sides[side].environment)

        counted = paired_runs.Duel(
            "ncu",
            paired_runs.one_by_one(count),
            paired_runs.COUNTER_PLAN,
            ends - time.monotonic(),
            asked.seed + 1,
            stop=stop,
        )
        try:
            return by_their_length(judged + paired_runs.fight(counted, names, limits, tell))
        except (ncu.CountersRefusedError, ValueError) as refused:
            tell(f"no hardware counters, judged by time: {refused}")
            return judged


def tell_cards(staying: Residents, tell: Tell) -> None:
    """Say how far apart the cards of one comparison are, where it had several."""
    if shares := apart(staying.base_times):
        each = ", ".join(f"{card[:12]} {share:+.2%}" for card, share in shares.items())
        tell(
            f"{len(shares)} cards, their own differences in time: {each}; "
            "both versions of a pair were on one card"
        )


def _priors(folders: Sequence[Path]) -> dict[tuple[str, str], Prior]:
    """What earlier results of this project say of cards like this one."""
    cards = {one.name for one in clocks.cards()}
    if not folders or len(cards) != 1:
        return {}
    with Workers() as workers:
        results = read_folders(folders, list_folders(folders), workers)
    history = assemble(results, configuration.load().repository_path, Directions())
    return prior.from_history(history, cards.pop())


@contextmanager
def _stopped_by_signals(tell: Tell) -> Iterator[threading.Event]:
    """Set by the first Ctrl-C or SIGTERM, after which no pair begins and what was measured is
    judged; a second one ends the comparison at once."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # Python lets the main thread alone ask for signals
        return
    asked = (signal.SIGINT, signal.SIGTERM)
    before = {one: signal.getsignal(one) for one in asked}

    def restore() -> None:
        for one in asked:
            signal.signal(one, before[one])

    def handle(number: int, _: object) -> None:
        stop.set()
        restore()
        tell("stopped: this round is the last; once more to end at once")

    for one in asked:
        signal.signal(one, handle)
    try:
        yield stop
    finally:
        restore()
