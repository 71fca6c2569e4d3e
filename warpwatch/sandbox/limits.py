"""What stops a run from outside: its deadline, a full disk, and results or output without end.

The results are a folder of the host, on which no engine sets a quota. The file system is asked
every second, which costs nothing beside a measurement; the folder itself is counted only when the
file system has grown by more than is allowed.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

MAX_OUTPUT_BYTES = 256 * 10**6
MAX_NEW_FILES = 200_000
_FULL_BYTES, _FULL_FILES = 20e6, 1_000
_EVERY_S, _COUNT_EVERY_S = 1.0, 10.0


@dataclass(frozen=True)
class _Use:
    bytes: int
    files: int

    def grew(self, since: _Use, limit_bytes: float) -> bool:
        return self.bytes - since.bytes > limit_bytes or self.files - since.files > MAX_NEW_FILES


class Watch:
    """Calls ``stop`` once, from a thread of its own, and says why in ``reason``."""

    def __init__(
        self, results: Path, results_gb: float, timeout_s: float | None, stop: Callable[[], None]
    ):
        self.reason = ""
        self._results = results
        self._limit_bytes = results_gb * 1e9
        self._timeout_s = timeout_s
        self._stop = stop
        self._output_bytes = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._before, self._disk_before = _folder_use(results), _disk_use(results)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        self._thread.join()

    def output(self, count: int) -> None:
        """The run has printed ``count`` bytes more."""
        self._output_bytes += count
        if self._output_bytes > MAX_OUTPUT_BYTES and not self.reason:
            self._end(f"it printed more than {MAX_OUTPUT_BYTES / 1e6:g} MB")

    def _look(self) -> None:
        deadline = time.monotonic() + self._timeout_s if self._timeout_s else float("inf")
        count_again = 0.0
        while not self.reason:
            now = time.monotonic()
            if self._done.wait(min(_EVERY_S, max(deadline - now, 0.0))):
                return
            now = time.monotonic()
            if now >= deadline:
                self._end(f"stopped after --timeout {self._timeout_s:g} s")
            elif said := full(self._results):
                self._end(said)
            elif now >= count_again and _disk_use(self._results).grew(
                self._disk_before, self._limit_bytes
            ):
                count_again = now + _COUNT_EVERY_S
                if _folder_use(self._results).grew(self._before, self._limit_bytes):
                    self._end(
                        f"stopped for writing more than {self._limit_bytes / 1e9:g} GB or "
                        f"{MAX_NEW_FILES:,} files of results: give it more with --results-gb"
                    )

    def _end(self, reason: str) -> None:
        self.reason = reason
        self._stop()


def full(folder: Path) -> str:
    """Says that the file system of ``folder`` is full; empty where it is not."""
    found = os.statvfs(folder)
    free_bytes = found.f_bavail * found.f_frsize
    if free_bytes < _FULL_BYTES or (found.f_files > 0 and found.f_favail < _FULL_FILES):
        return f"{folder} is full: free some space and run it again"
    return ""


def _disk_use(folder: Path) -> _Use:
    found = os.statvfs(folder)
    return _Use((found.f_blocks - found.f_bfree) * found.f_frsize, found.f_files - found.f_ffree)


def _folder_use(folder: Path) -> _Use:
    """What lies below, links not followed; a loop, because code that runs there may nest deeply."""
    used = files = 0
    waiting = [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    files += 1
                    used += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError:
            continue  # gone in between, or beyond what a path can name
    return _Use(used, files)
