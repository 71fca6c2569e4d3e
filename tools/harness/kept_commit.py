"""Times a commit whose kernels are kept: ``python -m tools.harness.kept_commit``.

It makes a repository of 32 workloads for 3 targets, 96 pairs, and measures two commits with
``warpwatch history``. The second launches a kernel once more: every kernel of it is compiled
already, as those of most commits are. Processor seconds are of all processes that the command
starts. Let nothing else run meanwhile; on a machine that is busy only they say something.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event, Thread

from tools.harness.first_verdict import SHAPES, Asked, repository
from tools.root import ROOT
from warpwatch.config.package import CACHE_VARIABLE

LIMIT_S = 20.0
# Those that every kernel of the package has a tile for.
TARGETS = ("sm_80", "sm_90", "gfx942")
ASKED = Asked(TARGETS, (*SHAPES, {"m": 1024, "n": 512, "k": 4096}))
_LOOK_S = 0.1
_NOTHING_OF_HERE = ("WARPWATCH_CONFIG", "WARPWATCH_RESULTS")


@dataclass(frozen=True)
class Took:
    """What measuring one commit took."""

    seconds: float
    processor_seconds: float


def main(given: list[str] | None = None) -> int:
    """Exit 0 within the limit, 1 over it."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.harness.kept_commit", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--workloads", type=int, default=32, metavar="N")
    parser.add_argument("--cores", type=int, default=2, metavar="N")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    args = parser.parse_args(given)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.cores])
    with tempfile.TemporaryDirectory(prefix="warpwatch-kept-") as folder:
        place = Path(folder)
        commits = repository(place / "team", args.workloads, ASKED)
        first, kept = (measured(place, one, args.workloads) for one in commits[:2])
    pairs = args.workloads * len(TARGETS)
    figures = {"pairs": pairs, "first": asdict(first), "kept": asdict(kept)}
    print(json.dumps(figures, indent=1) if args.json else described(pairs, first, kept))
    return int(kept.seconds > LIMIT_S)


def described(pairs: int, first: Took, kept: Took) -> str:
    """Both figures in words."""
    lines = [f"{pairs} pairs of a workload and a target, {len(os.sched_getaffinity(0))} cores"]
    for name, one, limit in (
        ("first commit, with its environment", first, ""),
        ("commit whose kernels are kept", kept, f" of {LIMIT_S:.0f}"),
    ):
        lines.append(
            f"{name}: {one.seconds:.1f} s{limit}, {one.processor_seconds:.1f} processor seconds"
        )
    return "\n".join(lines)


def measured(place: Path, commit: str, workloads: int) -> Took:
    """Measure one commit of the repository in ``place``; what was compiled before is kept there."""
    team = place / "team"
    subprocess.run(["git", "-C", str(team), "checkout", "--quiet", commit], check=True)
    given = {key: value for key, value in os.environ.items() if key not in _NOTHING_OF_HERE}
    given |= {
        "PYTHONPATH": str(ROOT),
        "HOME": str(place),  # asv's description of the machine
        CACHE_VARIABLE: str(place / "kernels"),
        "WARPWATCH_NVIDIA_NODE": "/nowhere",  # as where no GPU is
    }
    command = [sys.executable, "-m", "warpwatch", "history", "--commits", "1"]
    begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    with counted() as unwaited:
        done = subprocess.run(command, cwd=team, env=given, capture_output=True, text=True)
    seconds, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    pairs = workloads * len(TARGETS)
    if done.returncode or f"compiled: {pairs} of {pairs} pairs" not in done.stderr:
        sys.exit(f"history ended with {done.returncode}:\n{done.stdout}{done.stderr[-4000:]}")
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Took(round(seconds, 1), round(spent + sum(unwaited.values()), 1))


@contextmanager
def counted() -> Iterator[dict[int, float]]:
    """The processor seconds of processes below this one that nobody waits for, and so no usage of
    children holds: the server of compilations ignores when its children end. Looked at now and
    then, so that the last tenth of a second of each may lack."""
    found: dict[int, float] = {}
    over = Event()

    def look() -> None:
        while not over.wait(_LOOK_S):
            found.update(_unwaited(os.getpid()))

    thread = Thread(target=look, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def _unwaited(root: int) -> dict[int, float]:
    parents, spent = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        process = int(path.parent.name)
        parents[process] = int(words[1])
        spent[process] = sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK")

    def is_below(process: int) -> bool:
        while process in parents:
            process = parents[process]
            if process == root:
                return True
        return False

    return {
        one: spent[one]
        for one, parent in parents.items()
        if parent != root and is_below(one) and _ignores_its_children(parent)
    }


def _ignores_its_children(process: int) -> bool:
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False
    ignored = int(status.partition("SigIgn:")[2].split()[0], 16)
    return bool(ignored >> (signal.SIGCHLD - 1) & 1)


if __name__ == "__main__":
    sys.exit(main())
