"""Two versions of the measured package side by side, each measured in processes of its own."""

from __future__ import annotations

import fcntl
import os
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from warpwatch.config import isolation

from . import compile_pairs

WORKING_TREE = "."
Pair = tuple[str, str]
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Version:
    """``asked`` is what the user wrote; ``environment`` makes a process measure this version."""

    asked: str
    measured: isolation.Measured
    environment: Mapping[str, str]

    @property
    def label(self) -> str:
        commit = self.measured.commit
        return commit if commit == "working tree" else commit[:10]


def prepare(revision: str, folder: Path, repository: Path | None = None) -> Version:
    """Export the package of ``revision`` (``.``: the working tree) below ``folder``."""
    if revision.startswith("-"):
        raise ValueError(f"expected a commit, a branch or . (the working tree), got {revision!r}")
    commit = None if revision == WORKING_TREE else revision
    site = folder / "site"
    measured = isolation.export(commit, site, repository)
    harness = isolation.link_harness(folder / "harness")
    # Triton may come from PYTHONPATH; the checkout may not: today's kernels lie in it.
    beside = isolation.foreign_path(os.environ.get("PYTHONPATH", ""))
    environment = {
        **os.environ,
        isolation.PATH_VARIABLE: isolation.search_path(site, harness, beside),
        isolation.SITE_VARIABLE: str(site.resolve()),
    }
    return Version(revision, measured, environment)


def same_package(base: Version, head: Version) -> bool:
    """Whether both are one git tree: then no measurement can tell them apart."""
    trees = (base.measured.tree, head.measured.tree)
    return trees[0] == trees[1] and trees[0] != "working tree"


def compiled(version: Version, pairs: Sequence[Pair], tell: Tell) -> dict[Pair, dict[str, Any]]:
    """The compiled measurements of one version, as plain objects."""
    found: dict[Pair, dict[str, Any]] = {}
    for pair, measurement in compile_pairs.compiled_pairs(pairs, version.environment):
        found[pair] = asdict(measurement)
        if len(found) % 20 == 0 or len(found) == len(pairs):
            tell(f"{version.label}: compiled {len(found)} of {len(pairs)}")
    return found


@contextmanager
def gpu_turn(tell: Tell) -> Iterator[None]:
    """Holds the GPUs of this machine for one comparison, or one sweep's timing: two at a time would
    time one another."""
    path = Path(tempfile.gettempdir()) / f"warpwatch-gpu-{os.getuid()}.lock"
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell("another comparison or sweep has the GPU: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def order(rounds: int, seed: int, cards: int = 1) -> Iterator[bool]:
    """For each round whether base runs first: balanced in blocks of four, random within.

    Args:
        rounds: How many.
        seed: Of the random order.
        cards: That take the rounds in turn; the rounds of each card are balanced by themselves.

    Yields:
        True where base is first.
    """
    chance = random.Random(seed)
    waiting: list[list[bool]] = [[] for _ in range(cards)]
    for number in range(rounds):
        mine = waiting[number % cards]
        if not mine:
            mine += [True, True, False, False]
            chance.shuffle(mine)
        yield mine.pop(0)
