"""Measurements in processes of their own: other kernels, another Triton, or code that may abort.

One process imports torch and Triton and forks a child for every few jobs of one target (see
:mod:`.job_process`): what a package decides at its import, or keeps of one target, never reaches
another. A compiler that ends its process, or hangs, costs its own job and no other. Where a command
has a server for it (see :mod:`.compile_server`), that process is a fork of the server's.
"""

from __future__ import annotations

import base64
import contextlib
import json
import lzma
import math
import os
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from threading import Thread
from typing import IO, Any

from warpwatch.config.package import CACHE_VARIABLE
from warpwatch.instruments.compiled.formats.job import Job as Job

from . import compile_server
from .workload import Measurement

# The slowest kernel of ours takes 15 s on a busy laptop.
JOB_SECONDS = 120.0
_BATCH = 4
_MOST_PROCESSES = 16
_LAST_WORDS_SECONDS = 10.0


@dataclass(frozen=True)
class Result:
    """What came of a job. ``values`` by metric name, ``None`` where a metric does not apply;
    ``code`` holds listings of machine code by its hash."""

    job: Job
    status: str
    detail: str = ""
    values: Mapping[str, float | None] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)
    code: Mapping[str, str] = field(default_factory=dict)


def run(
    jobs: Sequence[Job],
    environment: Mapping[str, str],
    *,
    one_process_each: bool = False,
    job_seconds: float = JOB_SECONDS,
) -> Iterator[Result]:
    """Measure ``jobs`` over all cores, each result as it comes."""
    for job, found in measure(
        jobs, environment, one_process_each=one_process_each, job_seconds=job_seconds
    ):
        yield Result(
            job=job,
            status=found.status,
            detail=found.detail,
            values={
                name: None if math.isnan(value) else value for name, value in found.values.items()
            },
            evidence=found.evidence,
            code={name: lzma.decompress(packed).decode() for name, packed in found.code.items()},
        )


def measure(
    jobs: Sequence[Job],
    environment: Mapping[str, str],
    *,
    one_process_each: bool = False,
    job_seconds: float = JOB_SECONDS,
) -> Iterator[tuple[Job, Measurement]]:
    """The same as measurements."""
    processes = min(len(os.sched_getaffinity(0)), _MOST_PROCESSES)
    batches = _batches(jobs, environment, processes, 1 if one_process_each else _BATCH)
    request = {
        "batches": [[asdict(job) for job in batch] for batch in batches],
        "processes": processes,
        "job_seconds": job_seconds,
        "parent": os.getpid(),
    }
    waiting = dict.fromkeys(jobs)
    said: deque[str] = deque(maxlen=20)
    with contextlib.closing(_answers(request, environment, said)) as lines:
        for line in lines:
            row = json.loads(line)
            job = Job(**row.pop("job"))
            waiting.pop(job, None)
            row["code"] = {name: base64.b64decode(one) for name, one in row["code"].items()}
            yield job, Measurement(**row)
    for job in waiting:
        words = said[-1].strip() if said else "it said nothing"
        yield (
            job,
            Measurement.without_values(
                job.name, job.target, "not measured", f"the compiling process ended: {words}"[:300]
            ),
        )


def _answers(
    request: Mapping[str, object], environment: Mapping[str, str], said: deque[str]
) -> Generator[str, None, None]:
    """The lines that answer a request; ``said`` gets the last words of who answers."""
    reading, words = os.pipe()
    listener = Thread(
        target=_listen, args=(os.fdopen(reading, errors="replace"), said), daemon=True
    )
    listener.start()
    code = 0
    try:
        connection = compile_server.connected(request, environment, words)
        if connection is None:
            code = yield from _of_a_process(request, environment, words)
        else:
            with connection, connection.makefile("r", encoding="utf-8") as answers:
                yield from answers
    finally:
        os.close(words)
        listener.join(_LAST_WORDS_SECONDS)
    if code and not said:
        said.append(f"exit code {code}")


def _of_a_process(
    request: Mapping[str, object], environment: Mapping[str, str], words: int
) -> Generator[str, None, int]:
    """The same of a process of its own; returns its exit code."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "warpwatch.instruments.compiled.measure.job_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=words,
        text=True,
        env=dict(environment) | compile_server.ONE_THREAD,
    )
    assert process.stdin and process.stdout
    try:
        with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
            pipe.write(json.dumps(request))
        yield from process.stdout
        return process.wait()
    finally:
        process.terminate()  # where nobody wants the rest
        process.wait()
        process.stdout.close()


def _batches(
    jobs: Sequence[Job], environment: Mapping[str, str], processes: int, most: int
) -> list[list[Job]]:
    """Jobs of one target each, so few that no core is idle, and at most ``most``. Where compiled
    kernels are kept, a process of its own takes longer to start than most jobs take: then they are
    as many as keep every core at work."""
    by_target: dict[str, list[Job]] = {}
    for job in jobs:
        by_target.setdefault(job.target, []).append(job)
    size = max(1, min(most, len(jobs) // processes))
    if environment.get(CACHE_VARIABLE):
        size = max(1, math.ceil(len(jobs) / max(processes, len(by_target))))
    return [
        found[start : start + size]
        for found in by_target.values()
        for start in range(0, len(found), size)
    ]


def _listen(stream: IO[str], said: deque[str]) -> None:
    """Hand on what the process says, and keep its last words."""
    with stream:
        for line in stream:
            sys.stderr.write(line)
            if line.strip():
                said.append(line)
