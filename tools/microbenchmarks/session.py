"""Runs every benchmark in processes of their own, each within its time."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tools.root import ROOT

from .programs.benchmark import Benchmark

Answer = dict[str, Any]
_WORKER = (sys.executable, "-m", "tools.microbenchmarks.worker")
_TO_BEGIN = 30.0  # seconds until a process has its card
_TO_END = 10.0


class Session:
    """A process that runs benchmarks; another one takes its place when it is lost."""

    def __init__(self, folder: Path, limit: float, worker: Sequence[str] = _WORKER) -> None:
        """Begin without a process.

        Args:
            folder: Holds a cubin for each benchmark.
            limit: Seconds of a benchmark.
            worker: The command of the process, to which the folder is added.
        """
        self._command, self.limit = [*worker, str(folder)], limit
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str] = queue.Queue()
        self.card: Answer = {}

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def open(self) -> None:
        """Start a process.

        Raises:
            RuntimeError: It has no card.
        """
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._lines = queue.Queue()
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        threading.Thread(
            target=_read, args=(self._process, self._lines), name="answers", daemon=True
        ).start()
        answer = self._answer(_TO_BEGIN)
        if "error" in answer:
            self._end()
            raise RuntimeError(f"no card to measure on: {answer['error']}")
        self.card = answer

    def run(self, one: Benchmark) -> Answer:
        """Run one benchmark, in a new process where the last one was lost.

        Args:
            one: Its program.

        Returns:
            ``clocks`` of each launch, or an ``error``.

        Raises:
            RuntimeError: There is no card any more.
        """
        if self._process is None:
            self.open()
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(one.name + "\n")
            self._process.stdin.flush()
            answer = self._answer(self.limit)
        except BrokenPipeError:
            answer = {"error": "its process had ended"}
        if "error" in answer:
            self._end()  # the context of a failed kernel is of no use
        return answer

    def _answer(self, limit: float) -> Answer:
        try:
            line = self._lines.get(timeout=limit)
        except queue.Empty:
            return {"error": f"no answer after {limit:.0f} s"}
        if not line:
            return {"error": "its process ended without an answer"}
        answer: Answer = json.loads(line)
        return answer

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # the driver still ends a kernel
                self._process.wait(timeout=_TO_END)
            self._process = None


def _read(process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line)
    lines.put("")


def measured(
    chosen: list[Benchmark], folder: Path, limit: float, budget: float
) -> Iterator[tuple[Benchmark, Answer]]:
    """Run benchmarks one after the other.

    Args:
        chosen: Those that could be assembled.
        folder: Holds their cubins.
        limit: Seconds of one.
        budget: Seconds of all; those that remain are not begun.

    Yields:
        Each benchmark with its answer.

    Raises:
        RuntimeError: There is no card.
    """
    until = time.monotonic() + budget
    with Session(folder, limit) as session:
        session.open()
        for one in chosen:
            if time.monotonic() > until:
                yield one, {"error": f"not begun within {budget:.0f} s"}
                continue
            try:
                answer = session.run(one)
            except RuntimeError as error:
                answer = {"error": str(error)}
            yield one, answer
