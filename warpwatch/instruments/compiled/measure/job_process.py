"""Takes batches of jobs on standard input, measures each in a fork, prints one JSON line a result.

The parent imports torch, Triton and the instrument, and nothing of what is measured: a fork starts
with all of them at no cost, and with no trace of another target. A child that dies or is silent for
too long costs the job it was at; a new one goes on with the rest of its batch.

No process outlives the one that started it: a compiler may run for ever. Whoever wants the results
is watched while compilers run, and a child ends with this process. Where a command compiles often,
a fork of :mod:`.compile_server` does this work, and no process is started for it.
"""

from __future__ import annotations

import base64
import contextlib
import gc
import json
import math
import os
import selectors
import signal
import sys
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import IO, Any, NoReturn

from warpwatch.config import isolation, tritons
from warpwatch.config.end_with_parent import end_with
from warpwatch.config.package import CACHE_VARIABLE
from warpwatch.instruments.compiled.formats.job import Job

from . import patience, slots
from .workload import Measurement, Recorded, Status, read, recorded, recorded_call

_MANY = 24  # jobs: a set of workloads, not a few calls on each target
_LOOKS_SECONDS = 1.0  # between looks for the parent, where its end cannot be waited for
_FAILED = 70  # how a child ends for an error of Python's: a compiler ends its process with 1
_COMPILING = "compiling "  # begins a line that is no result
_RECORDED = "recorded"  # is one: the next job is begun before any has a result


@dataclass
class _Child:
    """A fork at work. ``done`` counts its jobs with a result, ``recorded`` those whose call was
    recorded; ``words`` is its standard error."""

    batch: Sequence[Job]
    process: int
    results: int
    words: IO[bytes]
    time: patience.Allowance
    slot: slots.Slot
    text: bytes = b""
    done: int = 0
    recorded: int = 0
    silenced: bool = False
    compiles: str = ""

    def hear(self, line: str) -> bool:
        """Whether a line of its pipe is a result; the others say which kernel is being compiled,
        that none is any more, or that a call was recorded."""
        if not line.startswith(_COMPILING):
            self.compiles = ""
            self.recorded += line == _RECORDED
            return line != _RECORDED
        self.compiles = line.removeprefix(_COMPILING)
        return False

    @property
    def at(self) -> int:
        """The place of the job that it is at: all are recorded before one is read."""
        return self.done if self.recorded == len(self.batch) else max(self.done, self.recorded)


def main() -> int:
    # Whatever a library prints goes to standard error: standard output is for results.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    request = json.load(sys.stdin)
    with _watched(int(request["parent"])) as ended:
        return answer(request, answers, ended)


def answer(request: Mapping[str, Any], answers: IO[str], ended: int | None) -> int:
    """Measure what is requested.

    Args:
        request: The jobs by batch, and how many may be measured at one time, for how long each.
        answers: Takes a line for each job.
        ended: An open file that can be read once nobody wants the answers; ``None`` where the
            system has none, and this process' parent is who wants them.

    Returns:
        The exit code.
    """
    batches = deque([Job(**job) for job in batch] for batch in request["batches"])
    import_tools(sum(map(len, batches)))
    running: dict[int, _Child] = {}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        many, seconds = int(request["processes"]), float(request["job_seconds"])
        _serve(batches, running, answers, (many, seconds), ended)
    finally:
        for child in running.values():
            _kill(child)
    return 0


@contextlib.contextmanager
def _watched(parent: int) -> Iterator[int | None]:
    """What can be read once ``parent`` has ended; nothing where this system has no such thing."""
    file = None
    with contextlib.suppress(AttributeError, OSError):
        file = os.pidfd_open(parent)
    try:
        yield file
    finally:
        if file is not None:
            os.close(file)


def import_tools(jobs: int) -> None:
    """Import all that a fork needs and that is not measured.

    Args:
        jobs: How many will be measured: for few of them less is imported beforehand.
    """
    # Both make millions of objects that stay: to look through them as often as Python does by
    # itself takes a twentieth of a compilation.
    gc.set_threshold(50_000, 20, 20)
    import torch
    import triton

    known = tritons.mistake(triton.__version__)
    if known:
        raise SystemExit(f"error: {known}")
    import triton.experimental.gluon
    import triton.language
    from triton.runtime.cache import triton_key

    from warpwatch.instruments.compiled.record import call as record
    from warpwatch.instruments.compiled.record import callables, driver
    from warpwatch.instruments.compiled.record.torch import ops as torch_ops

    from . import evidence, reading

    triton_key()  # a hash of all of Triton, remembered: half a second for each fork otherwise
    if jobs > _MANY:
        # torch imports it at the first call of an operator of one's own: two seconds in each fork
        # that meets one, and for nothing where none does.
        import torch._dynamo
    del torch, triton, callables, driver, evidence, reading, record, torch_ops


def _serve(
    batches: deque[list[Job]],
    running: dict[int, _Child],
    answers: IO[str],
    limits: tuple[int, float],
    parent_ended: int | None,
) -> None:
    """``limits`` are how many children run at a time, and the seconds that each job has."""
    processes, job_seconds = limits
    parent = os.getppid()
    with selectors.DefaultSelector() as selector:
        if parent_ended is not None:
            selector.register(parent_ended, selectors.EVENT_READ)
        while batches or running:
            if os.getppid() != parent:
                return
            seconds = math.inf if parent_ended is not None else _LOOKS_SECONDS
            while batches and len(running) < processes:
                slot = slots.take()
                if slot is None:  # another run at the same time has them all
                    seconds = slots.PATIENCE_SECONDS
                    break
                child = _start(batches.popleft(), job_seconds, slot)
                running[child.results] = child
                selector.register(child.results, selectors.EVENT_READ)
            for child in running.values():
                seconds = min(seconds, child.time.deadline - time.monotonic())
            for key, _ in selector.select(max(0.0, seconds)):
                if key.fd == parent_ended:
                    return
                child = running[key.fd]
                text = os.read(child.results, 1 << 20)
                *lines, child.text = (child.text + text).split(b"\n")
                for line in map(bytes.decode, lines):
                    if child.hear(line):
                        answers.write(line + "\n")
                        child.done += 1
                    if not line.startswith(_COMPILING):
                        child.time.begin()
                answers.flush()
                if not text:
                    selector.unregister(child.results)
                    del running[child.results]
                    _end(child, batches, answers, job_seconds)
            for child in running.values():
                late = time.monotonic() > child.time.deadline and not child.silenced
                if late and not child.time.is_extended():
                    child.silenced = True
                    _kill(child)


def _start(batch: Sequence[Job], job_seconds: float, slot: slots.Slot) -> _Child:
    reading, writing = os.pipe()
    words = tempfile.TemporaryFile()  # noqa: SIM115  (closed when the child has ended)
    sys.stderr.flush()
    starter = os.getpid()
    process = os.fork()
    if process == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()  # so that the compilers it starts end with it
        end_with(starter)
        os.close(reading)
        os.dup2(words.fileno(), 2)
        _work(batch, writing)
    os.close(writing)
    allowance = patience.Allowance(process, job_seconds)
    return _Child(batch, process, reading, words, allowance, slot)


def _work(batch: Sequence[Job], pipe: int) -> NoReturn:
    from warpwatch.instruments.compiled.record import driver

    code = _FAILED
    try:
        isolation.measured()
        with os.fdopen(pipe, "w", encoding="utf-8") as answers:

            def say(kernel: str) -> None:
                answers.write(f"{_COMPILING}{kernel}\n")
                answers.flush()

            driver.on_compiling = say
            for job, found in _in_turn(batch, answers):
                answers.write(_line(job, read(found)) + "\n")
                answers.flush()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _in_turn(
    batch: Sequence[Job], answers: IO[str]
) -> Iterator[tuple[Job, Recorded | Measurement]]:
    """The jobs with their recorded calls. Where texts of machine code are kept, all calls are
    recorded first: the disassembler takes longer to start than to read several kernels."""
    if not os.environ.get(CACHE_VARIABLE):
        for job in batch:
            yield job, _recorded(job)
        return
    from warpwatch.instruments.compiled.machine_code import sass

    begun: list[tuple[Job, Recorded | Measurement]] = []
    for job in batch:
        begun.append((job, _recorded(job)))
        answers.write(_RECORDED + "\n")
        answers.flush()
    calls = [one.recording for _, one in begun if isinstance(one, Recorded)]
    kernels = [launch.kernel for call in calls for launch in call.launches]
    with contextlib.suppress(ValueError):  # who reads the kernel by itself says which it is
        sass.disassemble_all([one.binary for one in kernels if one.target.backend == "cuda"])
    yield from begun


def _recorded(job: Job) -> Recorded | Measurement:
    from warpwatch.config import package as configuration
    from warpwatch.config import targets
    from warpwatch.instruments.compiled.record import autotune

    autotune.only = job.configuration
    target = targets.get(job.target)
    if job.is_workload:
        return recorded(configuration.workloads().get(job.name), target)
    return recorded_call(job.name, target, arguments=job.arguments, backward=job.backward)


def _line(job: Job, found: Measurement) -> str:
    row = asdict(found)
    row["code"] = {name: base64.b64encode(one).decode() for name, one in found.code.items()}
    return json.dumps({"job": asdict(job), **row})


def _end(child: _Child, batches: deque[list[Job]], answers: IO[str], job_seconds: float) -> None:
    """Take leave of a child: what it was at when it died has a result too."""
    os.close(child.results)
    child.slot.give_back()
    _, state = os.waitpid(child.process, 0)
    code = os.waitstatus_to_exitcode(state)
    child.words.seek(0)
    words = child.words.read().decode(errors="replace")
    child.words.close()
    rest = list(child.batch[child.done :])
    if code or rest:
        sys.stderr.write(words)
    if not rest:
        return
    broken = rest.pop(child.at - child.done)
    status: Status = "not measured"
    at = f" at {child.compiles}" if child.compiles else ""
    if child.silenced:
        hangs = f"the compiler{at}" if at else "the compiler or host code"
        detail = f"timeout: no result after {job_seconds:.0f} s, {hangs} hangs"
    elif code < 0:
        status = "compile failed"
        name = signal.Signals(-code).name
        detail = f"the compiler ended its process{at} ({name}): {_telling(words, 0)}"
    elif at and code == 1:  # such as inline assembly that its assembler does not know
        status = "compile failed"
        detail = f"the compiler ended its process{at}: {_telling(words, 0)}"
    else:
        detail = f"harness error: the process ended early: {_telling(words, -1)}"
    found = Measurement.without_values(broken.name, broken.target, status, detail[:300])
    answers.write(_line(broken, found) + "\n")
    answers.flush()
    if rest:
        batches.appendleft(rest)


def _telling(words: str, which: int) -> str:
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    telling = [line for line in lines if "rror" in line or "ssert" in line] or lines
    return telling[which] if telling else "it said nothing"


def _kill(child: _Child) -> None:
    try:
        os.killpg(child.process, signal.SIGKILL)
    except ProcessLookupError:
        os.kill(child.process, signal.SIGKILL)


def leave(code: int) -> NoReturn:
    """End without Python's own end, at which Triton 3.9 lists all that its bindings hold."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    leave(main())
