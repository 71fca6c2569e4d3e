"""How a command is stopped, and how it ends the processes that it started."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager


class Stopped(KeyboardInterrupt):
    """SIGTERM came."""


@contextmanager
def stopped_by_sigterm() -> Iterator[None]:
    """SIGTERM raises :class:`Stopped`, within: workers are ended as after Ctrl-C."""

    def stop(*_: object) -> None:
        raise Stopped

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def end(process: subprocess.Popen[str]) -> None:
    """End the process and what it started, a profiler's child included."""
    if process.poll() is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            process.kill()
    process.wait()
