"""Which runs of asv measure the commits of a history, and which of them at the same time."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from warpwatch import project
from warpwatch.config.package import workloads as load_workloads
from warpwatch.session import commit

_WITHOUT_GPU = ("compiled", "host")
# How asv calls what times the host's work.
_OF_HOST = (
    "host.Host.track_host_us",
    *(f"host.ColdStart.track_{one}" for one in commit.COLD_START),
)
# Compiled values need no quiet machine, and asv hands them out one by one: while it does, other
# commits are compiled. Three queues keep two cores busy, since each waits now and then; between
# them they have no more compilers than there are cores.
_QUEUES = 3


@dataclass(frozen=True)
class Queue:
    """A run of asv over ``commits``, in an environment of its own where ``name`` is not empty.
    ``card`` is a value of ``CUDA_VISIBLE_DEVICES``; where it is empty, the process sees all."""

    name: str
    commits: Sequence[str]
    patterns: Sequence[str]
    card: str = ""

    @property
    def log(self) -> Path:
        return Path(".asv") / (f"run-{self.name}.log" if self.name else "run.log")


def patterns_of_the_set(patterns: list[str]) -> list[str]:
    """asv's ``--bench`` patterns, less the GPU values that the history set leaves out anyway: asv
    starts a process for each value, and the card would wait for them."""
    known = [*load_workloads().all_workloads(), *commit.peers_measured()]
    names = [workload.name for workload in known]
    wanted = commit.wanted(names)
    if wanted == names:
        return patterns
    # asv searches "module.class.method('parameter', ...)".
    values = "|".join(re.escape(repr(name)) for name in wanted)
    allowed = rf"(?:{'|'.join(_WITHOUT_GPU)})\.|.*\((?:{values})\)$"
    return [f"^(?={allowed})(?=.*(?:{pattern}))" for pattern in patterns or [""]]


def stages(
    commits: Sequence[str], bench: list[str], cards: Sequence[str] | None
) -> Iterator[list[Queue]]:
    """What asv measures at a time, stage after stage.

    Args:
        commits: Newest first.
        bench: Patterns of benchmarks, as the user gave them.
        cards: Values of ``CUDA_VISIBLE_DEVICES`` of cards that are alike; None without a GPU.

    Yields:
        The queues of a stage. Each card has one, with every so many of the commits. What times the
        host's work has the machine to itself.
    """
    if cards is None:
        # Without a GPU its suites have nothing to say, one process a value.
        if bench:
            yield [Queue("", commits, patterns_of_the_set(bench))]
            return
        yield queues(commits, patterns_of_the_set(["^compiled"]))
    elif len(cards) < 2 or any(re.search(pattern, one) for pattern in bench for one in _OF_HOST):
        yield [Queue("", commits, patterns_of_the_set(bench))]
        return
    else:
        patterns = patterns_of_the_set(bench or ["^(?!host)"])
        yield queues(commits, patterns, cards)
    if not bench and has("host"):  # a package under the harness may have none
        yield [Queue("host", commits, patterns_of_the_set(["^host"]))]


def queues(
    commits: Sequence[str], patterns: Sequence[str], cards: Sequence[str] = ()
) -> list[Queue]:
    """The commits dealt out over the cards, or over as many queues as keep this machine busy."""
    cores = len(os.sched_getaffinity(0))
    count = len(cards) or (_QUEUES if cores > 1 else 1)
    count = min(count, len(commits))
    given = cards or [""] * count
    return [
        Queue(str(number + 1) if number else "", commits[number::count], patterns, given[number])
        for number in range(count)
    ]


def has(module: str) -> bool:
    """Whether asv, when it ran last, found a benchmark in a module that has values to measure.

    Args:
        module: Such as ``host``.

    Returns:
        Also true where asv has not run yet.

    Example:
        >>> has("host")
        True
    """
    try:
        found = json.loads((project.results() / "benchmarks.json").read_text("utf-8"))
        return any(
            name.startswith(f"{module}.") and all(one["params"])
            for name, one in found.items()
            if name != "version"
        )
    except (OSError, ValueError, KeyError, TypeError):
        return True  # asv says what it lacks
