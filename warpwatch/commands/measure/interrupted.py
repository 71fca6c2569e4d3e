"""How asv ends where its history is interrupted: by itself, or with all that it has started.

Interrupted while it starts its server of benchmarks, asv waits for that server for ever, and the
server for a question.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# A terminal interrupts asv, too; who interrupts the history only does not.
_OF_ITSELF_S = 2.0
_ONCE_MORE_S = 10.0
_running: set[subprocess.Popen[str]] = set()


KEPT = "finished commits are kept"
GOES_ON = f"{KEPT}: the same command measures the others"


@contextmanager
def says_what_is_kept(again: bool) -> Iterator[None]:
    """Say where the history is interrupted that it can go on.

    Args:
        again: Whether it measures recorded values too: then it would begin from the start.

    Raises:
        KeyboardInterrupt: After the line.

    Example:
        >>> with says_what_is_kept(again=False):
        ...     pass
    """
    try:
        yield
    except KeyboardInterrupt:
        print(KEPT if again else GOES_ON, file=sys.stderr)
        raise


@contextmanager
def ends_with(run: subprocess.Popen[str]) -> Iterator[None]:
    """End a run of asv where this thread, or the one in :func:`all_end`, is interrupted.

    Args:
        run: That has begun.

    Raises:
        KeyboardInterrupt: After the end of all that the run has started.
    """
    _running.add(run)
    try:
        yield
    except KeyboardInterrupt:
        _end(run)
        raise
    finally:
        _running.discard(run)


@contextmanager
def all_end() -> Iterator[None]:
    """End the runs of other threads where this one is interrupted.

    Raises:
        KeyboardInterrupt: After their end.
    """
    try:
        yield
    except KeyboardInterrupt:
        for run in list(_running):
            _end(run)
        raise


def _end(run: subprocess.Popen[str]) -> None:
    started = [_open(pid) for pid in _descendants(run.pid)]
    try:
        with suppress(subprocess.TimeoutExpired):
            run.wait(_OF_ITSELF_S)
        if run.poll() is None:
            run.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                run.wait(_ONCE_MORE_S)
    finally:  # who interrupts once more does not want to wait
        run.kill()
        run.wait()
        for process in started:
            if process is not None:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(process, signal.SIGKILL)
                os.close(process)


def _open(pid: int) -> int | None:
    """What names this process and no later one of the same number; None where it has ended."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _descendants(pid: int) -> list[int]:
    """The processes that one has started, and these; none where the system does not list them."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name before it may hold anything.
            parent = int(stat.read_text("utf-8", "replace").rpartition(") ")[2].split()[1])
            parents.setdefault(parent, []).append(int(stat.parent.name))
    found = list(parents.get(pid, []))
    for one in found:
        found += parents.get(one, [])
    return found
