"""Measures many workloads in worker processes: what hangs is ended, what is lost is left behind.

Outcomes reach the caller (and the disk) one by one, so an interruption loses nothing.
"""

from __future__ import annotations

import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.instruments.outcome import Outcome
from benchmarks.isolation import subprocess_environment

Report = Callable[[Outcome], None]

START_SECONDS = 120.0
# After so many devices lost or processes dead in a row, nothing more is tried.
MAX_LOST = 3
_DIED = "the measuring process ended: "


class Session:
    """Runs workers over ``request`` (see :mod:`benchmarks.instruments.worker`) until every workload
    has an outcome. ``wrap`` is a command that runs the worker, such as a profiler's;
    ``environment`` names another version of the measured package than this process sees."""

    def __init__(
        self,
        request: Mapping[str, Any],
        *,
        seconds_each: float = 90.0,
        start_seconds: float = START_SECONDS,
        wrap: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.request = dict(request)
        self.seconds_each = seconds_each
        self.start_seconds = start_seconds
        self.wrap = tuple(wrap)
        self.environment = environment
        self.card: dict[str, Any] | None = None
        self.errors = ""
        self._ahead: subprocess.Popen[str] | None = None

    def start_ahead(self) -> None:
        """Start the first worker now. It imports what it needs and makes its context on the GPU,
        which must not fall into a measurement: ``wait_ahead`` before anything is measured."""
        if self._ahead is None:
            self._ahead = self._start("--ahead")

    def wait_ahead(self, seconds: float = START_SECONDS) -> bool:
        """Whether the worker that was started ahead is ready, ``seconds`` from now at most."""
        if self._ahead is None:
            return False
        assert self._ahead.stdout
        readable, _, _ = select.select([self._ahead.stdout], [], [], seconds)
        return bool(readable) and "ready" in self._ahead.stdout.readline()

    def discard(self) -> None:
        """End a worker that was started ahead and never asked for anything."""
        if self._ahead is not None:
            end(self._ahead)
            self._ahead = None

    def _start(self, *arguments: str) -> subprocess.Popen[str]:
        # -P: the package comes from the path alone, not from the folder this process stands in,
        # which as a rule is the checkout.
        worker = [sys.executable, "-P", "-m", "benchmarks.instruments.worker", *arguments]
        return subprocess.Popen(
            [*self.wrap, *worker],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=subprocess_environment(self.environment),
            start_new_session=True,
        )

    def run(self, workloads: Sequence[str], report: Report | None = None) -> dict[str, Outcome]:
        """Every workload's outcome. ``report`` is called with each as it comes."""
        outcomes: dict[str, Outcome] = {}
        left = list(workloads)
        lost: list[Outcome] = []
        while left:
            if len(lost) >= MAX_LOST:
                why = f"not tried after {lost[-1].detail}"
                found = [Outcome(name, lost[-1].status, why) for name in left]
            else:
                found = list(self._one_worker(left, report))
            for outcome in found:
                outcomes[outcome.workload] = outcome
                gone = outcome.status == "device lost" or outcome.detail.startswith(_DIED)
                lost = [*lost, outcome] if gone else []
            left = [name for name in left if name not in outcomes]
        return outcomes

    def run_once(
        self, workloads: Sequence[str], report: Report | None = None
    ) -> dict[str, Outcome]:
        """The outcomes one process gets to: all, or those up to one that hung or was lost."""
        return {outcome.workload: outcome for outcome in self._one_worker(workloads, report)}

    def _one_worker(self, workloads: Sequence[str], report: Report | None) -> Iterator[Outcome]:
        """Outcomes of one process, the last of them maybe that it hung or died. At least one."""
        process, self._ahead = self._ahead or self._start(), None
        assert process.stdin and process.stdout and process.stderr
        lines: queue.Queue[str | None] = queue.Queue()
        errors: list[str] = []
        readers = [
            threading.Thread(target=_pump, args=(process.stdout, lines), daemon=True),
            threading.Thread(target=errors.extend, args=(process.stderr,), daemon=True),
        ]
        for reader in readers:
            reader.start()
        try:
            process.stdin.write(json.dumps({**self.request, "workloads": list(workloads)}) + "\n")
            process.stdin.close()
        except BrokenPipeError:
            pass  # it died at once; its last words are read below
        waiting = list(workloads)
        seconds = self.start_seconds + self.seconds_each
        try:
            while waiting:
                outcome = self._next(lines, waiting[0], seconds)
                if outcome is None:
                    process.wait(10)
                    readers[1].join(5)
                    outcome = Outcome(waiting[0], "failed", _DIED + last_words(errors))
                waiting.remove(outcome.workload)
                seconds = self.seconds_each
                if report is not None:
                    report(outcome)
                yield outcome
                if outcome.status in ("hung", "failed") and process.poll() is not None:
                    return
                if outcome.status in ("hung", "device lost"):
                    return
            if self.wrap:
                process.wait(self.start_seconds)  # a profiler writes its report last
        finally:
            end(process)
            readers[1].join(5)
            self.errors = "".join(errors)

    def _next(
        self, lines: queue.Queue[str | None], workload: str, seconds: float
    ) -> Outcome | None:
        """The next outcome; ``None`` when the process has ended."""
        while True:
            try:
                line = lines.get(timeout=seconds)
            except queue.Empty:
                return Outcome(workload, "hung", f"no answer within {seconds:.0f} s: ended")
            if line is None:
                return None
            if not line.startswith("{"):
                continue  # a profiler's own chatter
            message = json.loads(line)
            if "card" in message:
                self.card = message["card"]
            elif "outcome" in message:
                return Outcome.from_json(message["outcome"])


def make_ready(sessions: Iterable[Session]) -> None:
    """Start the workers of all ``sessions`` and wait until each is ready: nothing else goes on then
    while one of them measures."""
    waiting = list(sessions)
    for session in waiting:
        session.start_ahead()
    for session in waiting:
        session.wait_ahead()


def end(process: subprocess.Popen[str]) -> None:
    """End the process and what it started, a profiler's child included."""
    if process.poll() is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            process.kill()
    process.wait()


def last_words(errors: Sequence[str]) -> str:
    words = [line.strip() for line in errors if line.strip()]
    return words[-1][:300] if words else "it said nothing"


def _pump(stream: Any, lines: queue.Queue[str | None]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)
