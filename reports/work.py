"""Work over the processors: the same functions run here when there is little to do."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from types import TracebackType
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")
MOST_PROCESSES = 8


def processors() -> int:
    """The processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return min(len(os.sched_getaffinity(0)), MOST_PROCESSES)
    return min(os.cpu_count() or 1, MOST_PROCESSES)


class Workers:
    """A pool that is started only by work that is worth it, and stopped on leaving: nothing of
    what it was given runs any more then."""

    def __init__(self, count: int | None = None):
        self._count = processors() if count is None else count
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def map(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], *, worth: bool
    ) -> Iterator[Result]:
        """The results in the order of the tasks; in other processes if that is ``worth`` it."""
        if not worth or self._count < 2 or len(tasks) < 2:
            return map(function, tasks)
        if self._pool is None:
            # Not fork: libraries underneath may have started threads.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._count, mp_context=context)
        with _interrupts_held():
            return self._pool.map(function, tasks)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Processes started in here never see a Ctrl-C, which a terminal sends to all: the one that
    started them, which sees it on leaving, stops them in order."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
