"""Work over the processors: the same functions run here when there is little to do."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

Given = TypeVar("Given")
Task = TypeVar("Task")
Result = TypeVar("Result")
MOST_PROCESSES = 8
_given: Any = None  # in a process of a pool: what ``map_with`` gave it


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
        self._end()

    def map(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], *, worth: bool
    ) -> Iterator[Result]:
        """The results in the order of the tasks; in other processes if that is ``worth`` it."""
        if not self._shares(tasks, worth):
            return map(function, tasks)
        if self._pool is None:
            self._start(None)
        return self._mapped(function, tasks)

    def map_with(
        self,
        given: Given,
        function: Callable[[Given, Task], Result],
        tasks: Sequence[Task],
        *,
        worth: bool,
    ) -> Iterator[Result]:
        """The same for functions that look at something large: each process gets it once, and where
        processes are forked they share this one's."""
        if not self._shares(tasks, worth):
            return map(partial(function, given), tasks)
        self._end()
        self._start(given)
        return self._mapped(partial(_with_given, function), tasks)

    def _shares(self, tasks: Sequence[Task], worth: bool) -> bool:
        return worth and self._count > 1 and len(tasks) > 1

    def _start(self, given: Any) -> None:
        # A fork knows all that was imported and read; with other threads it could hang.
        may_fork = sys.platform == "linux" and threading.active_count() == 1
        context = multiprocessing.get_context("fork" if may_fork else "spawn")
        self._pool = ProcessPoolExecutor(
            self._count, mp_context=context, initializer=_take, initargs=(given,)
        )

    def _mapped(
        self, function: Callable[[Task], Result], tasks: Sequence[Task]
    ) -> Iterator[Result]:
        assert self._pool is not None
        with _interrupts_held():
            return self._pool.map(function, tasks)

    def _end(self) -> None:
        if self._pool is not None:
            # A thread whose join is interrupted counts as ended (Python 3.11): this process would
            # go without stopping the others, which would wait for work for ever.
            with _interrupts_held():
                self._pool.shutdown(cancel_futures=True)
                self._pool = None


def _take(given: Any) -> None:
    global _given
    _given = given
    # What a process inherits stays as long as it does: to look for garbage in it takes time, and
    # makes a copy of memory that is shared.
    gc.freeze()


def _with_given(function: Callable[[Any, Task], Result], task: Task) -> Result:
    return function(_given, task)


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
