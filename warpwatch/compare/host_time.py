"""Host time of calls that are equal on both sides: a card has nothing to say of them, the Python
that leads to their launch may differ."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from warpwatch.config import package as configuration
from warpwatch.instruments.outcome import Outcome
from warpwatch.judge.model.thresholds import Thresholds
from warpwatch.judge.pairs.plan import Plan
from warpwatch.judge.pairs.run_verdict import Judged
from warpwatch.session import versions
from warpwatch.session.session import Session

from . import paired_runs
from .paired_runs import Pair, Side

# A verdict on the card is due in a minute: no further pair begins after so long.
SECONDS = 30.0


def chosen(equal: Sequence[str]) -> list[str]:
    """Those of the equal workloads whose host time the project asks for.

    Args:
        equal: Workloads.

    Returns:
        Those in ``host`` of ``[sets]``; all where it names ``*``.
    """
    wanted = set(configuration.load().sets.host)
    return [name for name in equal if {"*", name} & wanted]


def judge(
    base: versions.Version,
    head: versions.Version,
    names: Sequence[str],
    limits: Thresholds,
    tell: Callable[[str], None],
) -> list[Judged]:
    """Judge ``host_us`` of workloads, in pairs of fresh processes.

    What is read is the time of a processor, so as many pairs run side by side as cores allow.

    Args:
        base: What is compared with.
        head: What is judged.
        names: The workloads.
        limits: What counts.
        tell: Hears how far it is.

    Returns:
        A series of each workload; nothing without workloads.
    """
    if not names:
        return []
    sides: Mapping[Side, versions.Version] = {"base": base, "head": head}

    def measure(turns: Sequence[tuple[Side, Side]], workloads: Sequence[str]) -> list[Pair]:
        def one(side: Side) -> Mapping[str, Outcome]:
            session = Session({"mode": "host"}, environment=sides[side].environment)
            return session.run(workloads)

        asked = [side for turn in turns for side in turn]
        with ThreadPoolExecutor(len(asked)) as pool:
            found = list(pool.map(one, asked))
        return [
            dict(zip(turn, found[2 * number :], strict=False)) for number, turn in enumerate(turns)
        ]

    together = max(1, len(os.sched_getaffinity(0)) // 2)
    duel = paired_runs.Duel("host", measure, Plan(), SECONDS, together=together)
    return paired_runs.fight(duel, names, limits, tell)
