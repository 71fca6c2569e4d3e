"""Measures many workloads in worker processes: what hangs is ended, what is lost is left behind.

A worker says what it begins, so what hangs or dies is blamed on whose call it was; the others of
its group are measured again without it. Outcomes reach the caller one by one.
"""

from __future__ import annotations

import os
import queue
import select
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from warpwatch import devices
from warpwatch.config.isolation import subprocess_environment
from warpwatch.instruments.gpu.card import clocks
from warpwatch.instruments.outcome import Outcome, Status
from warpwatch.instruments.peers import registry as peers

from .process import DIED, Running, next_message
from .stopping import end

Report = Callable[[Outcome], None]

START_SECONDS = 120.0
# After so many groups in a row that lost the device or their process, nothing more is tried.
MAX_LOST = 3
# How long a process that lost its device may take to end.
_LOST_SECONDS = 10.0
# Fewer take less to compile than the processes that would do it ahead take to start.
_WORTH_COMPILING_AHEAD = 6
# Outcomes come in the order of the processes, so the first may be that of the slowest.
_COMPILING_SECONDS = 300.0
# Each of these holds the inputs of a workload, and a context, on the card.
_MOST_COMPILING = 16
_SAID: set[str] = set()  # what workers noted, each once
_ready: set[int] = set()  # workers that were made ready, as the driver numbers processes


def group(mode: str, name: str) -> str:
    """What ``name`` is measured together with: a workload with its peers, a workload's choices
    with each other, all that is compiled ahead; else each is by itself."""
    if mode == "beside":
        return peers.base_name(name)
    return "" if mode in ("choices", "ahead") else name


class Session:
    """Runs workers over ``request`` (see :mod:`warpwatch.session.worker`) until every workload
    has an outcome. ``wrap`` is a command that runs the worker, such as a profiler's;
    ``environment`` names another version of the measured package than this process sees.

    A worker that ``stays`` answers one ``run`` after another until ``discard``; one that was lost
    is replaced.
    """

    def __init__(
        self,
        request: Mapping[str, Any],
        *,
        seconds_each: float = 90.0,
        start_seconds: float = START_SECONDS,
        wrap: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        stays: bool = False,
    ) -> None:
        self.request = dict(request)
        self.stays = stays
        self.seconds_each = seconds_each
        self.start_seconds = start_seconds
        self.wrap = tuple(wrap)
        self.environment = environment
        self.card: dict[str, Any] | None = None
        self.ceilings: devices.Ceilings | None = None  # the first worker's, on an unknown card
        self.errors = ""
        self.unended = False  # whether the last wrapping command had to be ended after its answers
        self._note = ""  # what the last worker found at its start that speaks against its numbers
        self._began = False  # whether the last worker began anything
        self._ahead: subprocess.Popen[str] | None = None
        self._staying: Running | None = None
        self._working: subprocess.Popen[str] | None = None
        self._stopped = False

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
        """End a worker that stayed, or was started ahead and never asked for anything."""
        if self._ahead is not None:
            end(self._ahead)
            self._ahead = None
        if self._staying is not None:
            self._staying.end()
            self._staying = None

    def stop(self) -> None:
        """End the worker, whatever it does, and start no other: called from another thread."""
        self._stopped = True
        if self._working is not None:
            end(self._working)

    def _start(self, *arguments: str) -> subprocess.Popen[str]:
        # -P: the package comes from the path alone, not from the folder this process stands in,
        # which as a rule is the checkout.
        worker = [sys.executable, "-P", "-m", "warpwatch.session.worker", *arguments]
        if not self.wrap:  # else the profiler is its parent
            worker.append(f"--parent={os.getpid()}")
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
        """Every workload's outcome, one also of what is named twice. ``report`` is called with each
        as it comes."""
        outcomes: dict[str, Outcome] = {}
        left = list(dict.fromkeys(workloads))
        lost: dict[str, Outcome] = {}  # by group
        while left and not self._stopped:
            if len(lost) >= MAX_LOST:
                last = list(lost.values())[-1]
                found: Iterable[Outcome] = self._not_tried(left, last, report)
            else:
                found = self._one_worker(left, report)
            for outcome in found:
                outcomes[outcome.workload] = outcome
                if outcome.status != "device lost" and not died(outcome):
                    lost.clear()
                elif self._began:
                    lost[group(self.request["mode"], outcome.workload)] = outcome
                else:  # it is nobody's fault: no process can be had
                    lost[f"start {len(lost)}"] = outcome
            left = [name for name in left if name not in outcomes]
        return outcomes

    def _not_tried(
        self, names: Sequence[str], last: Outcome, report: Report | None
    ) -> Iterator[Outcome]:
        for name in names:
            outcome = Outcome(name, last.status, f"not tried after {last.detail}")
            if report is not None:
                report(outcome)
            yield outcome

    def run_once(
        self, workloads: Sequence[str], report: Report | None = None
    ) -> dict[str, Outcome]:
        """The outcomes one process gets to: all, or those up to one that hung or was lost."""
        return {outcome.workload: outcome for outcome in self._one_worker(workloads, report)}

    def _one_worker(self, workloads: Sequence[str], report: Report | None) -> Iterator[Outcome]:
        """Outcomes of one process, the last maybe that it hung or died. None only after a stop."""
        if self._staying is not None:
            worker, self._staying = self._staying, None
        else:
            process, self._ahead = self._ahead or self._start(), None
            worker = Running(process)
            self._note = ""
        self._working = worker.process
        if self._stopped:  # while it started
            end(worker.process)
        request = {**self.request, "workloads": list(workloads)}
        if self.ceilings is not None:
            request["measured_ceilings"] = self.ceilings.to_json()
        if _ready:
            request["ours"] = sorted(_ready)
        worker.send(request, more=self.stays)
        waiting = list(workloads)
        whole = False
        try:
            for outcome in self._answers(worker.lines, waiting, worker.last_word):
                waiting.remove(outcome.workload)
                if self._note:
                    detail = "; ".join(filter(None, [outcome.detail, self._note]))
                    outcome = replace(outcome, detail=detail)
                if report is not None:
                    report(outcome)
                whole = not waiting and outcome.status not in ("hung", "device lost")
                whole = whole and not died(outcome)
                yield outcome
            self.unended = False
            if self.wrap and not waiting:
                try:
                    worker.process.wait(self.start_seconds)  # a profiler writes its report last
                except subprocess.TimeoutExpired:
                    self.unended = True
        finally:
            if self.stays and whole and not self._stopped:
                self._staying = worker
            else:
                self.errors = worker.end()

    def _told(self, message: Mapping[str, Any]) -> None:
        """What a worker says of the card before it measures."""
        self.card = message.get("card", self.card)
        self._note = message.get("note", self._note)
        _say_once(self._note)
        if "ceilings" in message:
            self.ceilings = devices.Ceilings.from_json(message["ceilings"])
            # Another session measures its own; that they differ a little is no news.
            _say_once(self.ceilings.said, about=self.ceilings.card)

    def _answers(
        self, lines: queue.Queue[str | None], waiting: Sequence[str], last_word: Callable[[], str]
    ) -> Iterator[Outcome]:
        """The outcomes a worker tells, and those of what it was at when it hung or died. The caller
        takes each from ``waiting``."""
        at: list[str] = []  # what the worker began last
        self._began = lost = False
        seconds = self.start_seconds + self.seconds_each
        while waiting:
            failed: tuple[Status, str]
            try:
                message = next_message(lines, _LOST_SECONDS if lost else seconds)
            except queue.Empty:
                failed = "hung", f"no answer within {seconds:.0f} s: ended"
            else:
                if message is not None:
                    self._told(message)
                    if "begin" in message:
                        # The first has the time a process takes to start as well.
                        seconds = self.seconds_each if at else seconds
                        at, self._began = message["begin"], True
                    if "outcome" in message:
                        outcome = Outcome.from_json(message["outcome"])
                        seconds = self.seconds_each
                        lost = lost or outcome.status in ("device lost", "hung")
                        yield outcome
                    continue
                failed = "failed", "" if lost else last_word()
            if not (lost or self._stopped):  # what we ended ourselves did not fail
                for name in [one for one in at if one in waiting] or waiting[:1]:
                    yield Outcome(name, *failed)
            return


def side_by_side(
    request: Mapping[str, Any],
    names: Sequence[str],
    most: int,
    report: Report | None = None,
    environment: Mapping[str, str] | None = None,
) -> dict[str, Outcome]:
    """The outcomes of ``names`` where nothing is timed: as many workers as there are cores, at
    most ``most``. ``report`` is called from several threads."""
    workers = max(1, min(len(names), len(os.sched_getaffinity(0)), most))
    shares = [names[first::workers] for first in range(workers)]
    sessions = [Session(request, environment=environment) for _ in shares]
    with ThreadPoolExecutor(workers) as pool:
        try:
            running = [
                pool.submit(session.run, share, report)
                for session, share in zip(sessions, shares, strict=True)
            ]
            return {name: one for future in running for name, one in future.result().items()}
        except BaseException:  # Ctrl-C: no worker outlives who asked
            for session in sessions:
                session.stop()
            raise


def compile_ahead(request: Mapping[str, Any], workloads: Sequence[str]) -> None:
    """Compile on all cores what would be compiled one after the other between measurements. Too
    few are left to be compiled in their turn.

    Args:
        request: As a session's; its mode does not matter.
        workloads: Names, of peers too; those whose first call waits for no compiler are left out.
    """
    names = [name for name in workloads if peers.compiles(name)]
    if len(names) < _WORTH_COMPILING_AHEAD:
        return
    print(f"{len(names)} are compiled before any is timed", file=sys.stderr, flush=True)
    # Of its own processes torch would start as many as there are cores, in each of ours.
    one_thread = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    processes = min(len(os.sched_getaffinity(0)), _MOST_COMPILING)
    ahead = Session(
        {**request, "mode": "ahead", "processes": processes},
        seconds_each=_COMPILING_SECONDS,
        environment=one_thread,
    )
    ahead.run(names)


def make_ready(sessions: Iterable[Session], meanwhile: Callable[[], object] | None = None) -> None:
    """Start the workers of all ``sessions`` and wait until each is ready: nothing else goes on then
    while one of them measures. Who came to the GPUs in this time is taken for one of them: in a
    container the driver's numbers of processes are not ours. ``meanwhile`` is called while they
    start."""
    waiting = list(sessions)
    before = clocks.computing()
    for session in waiting:
        session.start_ahead()
    if meanwhile is not None:
        meanwhile()
    for session in waiting:
        session.wait_ahead()
    for card, processes in clocks.computing().items():
        _ready.update(processes - before.get(card, frozenset()))


def died(outcome: Outcome) -> bool:
    """Whether the process ended while it was at this workload."""
    return outcome.status == "failed" and outcome.detail.startswith(DIED)


def _say_once(note: str, about: str = "") -> None:
    if note and (about or note) not in _SAID:
        _SAID.add(about or note)
        print(note, file=sys.stderr, flush=True)
