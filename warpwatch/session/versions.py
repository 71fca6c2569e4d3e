"""Two versions of the measured package side by side, each measured in processes of its own."""

from __future__ import annotations

import fcntl
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpwatch.config import isolation
from warpwatch.instruments.outcome import Outcome

from .session import Session, make_ready

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
    """The compiled measurements of one version, as plain JSON objects."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "warpwatch.session.compiled_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=version.environment[isolation.SITE_VARIABLE],
        env=isolation.subprocess_environment(version.environment),
    )
    assert process.stdin and process.stdout
    process.stdin.write(json.dumps(list(pairs)))
    process.stdin.close()
    found: dict[Pair, dict[str, Any]] = {}
    for line in process.stdout:
        if line.startswith("{"):
            row = json.loads(line)
            found[row["workload"], row["target"]] = row
            if len(found) % 20 == 0 or len(found) == len(pairs):
                tell(f"{version.label}: compiled {len(found)} of {len(pairs)}")
    if process.wait() != 0 or len(found) < len(pairs):
        raise ValueError(
            f"compiling {version.label} stopped after {len(found)} of {len(pairs)} workloads "
            f"(exit code {process.returncode}); its last words are above"
        )
    return found


def run_once(
    version: Version, workloads: Sequence[str], request: Mapping[str, Any]
) -> dict[str, Outcome]:
    """One fresh process that measures these workloads once."""
    session = Session(request, environment=version.environment)
    return session.run(workloads)


class Turns:
    """Fresh processes that each measure once, of two versions in turn.

    ``prepare`` starts those of the coming turns and waits until each has imported torch and made
    its context on the GPU: neither falls into another's measurement. ``close`` ends those whose
    turn never came.
    """

    def __init__(self, versions: Mapping[str, Version], request: Mapping[str, Any]) -> None:
        self._versions = versions
        self._request = request
        self._waiting: dict[str, list[Session]] = {side: [] for side in versions}

    def prepare(self, sides: Sequence[str]) -> None:
        coming = [(side, self._session(side)) for side in sides]
        for side, session in coming:
            self._waiting[side].append(session)
        make_ready(session for _, session in coming)

    def measure(self, side: str, workloads: Sequence[str]) -> dict[str, Outcome]:
        waiting = self._waiting[side]
        return (waiting.pop(0) if waiting else self._session(side)).run(workloads)

    def close(self) -> None:
        for session in (one for waiting in self._waiting.values() for one in waiting):
            session.discard()

    def _session(self, side: str) -> Session:
        return Session(self._request, environment=self._versions[side].environment)


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


def order(rounds: int, seed: int) -> Iterator[bool]:
    """For each round whether base runs first: balanced in blocks of four, random within."""
    chance = random.Random(seed)
    done = 0
    while done < rounds:
        block = [True, True, False, False]
        chance.shuffle(block)
        yield from block[: rounds - done]
        done += len(block)
