"""What one call costs the host: argument checks, the choice of a kernel, Triton's launch path.

The calls run against the recording driver, which costs each launch the same few microseconds and
keeps no values here. It times the Python of a commit, not the driver of a card: no GPU is needed.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from warpwatch.config import targets
from warpwatch.config.package import workloads as load_workloads
from warpwatch.instruments.method import method_hash, version
from warpwatch.instruments.outcome import Outcome

from . import measuring

BATCHES = 21
CALLS = 20
TARGET = "sm_90"


def batches(call: Callable[[], object], count: int = BATCHES, calls: int = CALLS) -> list[float]:
    """CPU microseconds a call, of ``count`` batches; the first call is not among them.

    CPU time, because another process's turn is no cost of the call.
    """
    call()
    taken = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(count):
            begin = time.process_time_ns()
            for _ in range(calls):
                call()
            taken.append((time.process_time_ns() - begin) / 1000 / calls)
    finally:
        gc.enable()
    return taken


def measure(names: Sequence[str], target: str = TARGET) -> dict[str, dict[str, Any]]:
    """By workload: status, detail and the samples of ``host_us``."""
    from triton.runtime.autotuner import Autotuner

    from warpwatch.instruments.compiled.record import driver
    from warpwatch.instruments.compiled.record.torch import cuda as torch_cuda

    found = targets.get(target)
    rows: dict[str, dict[str, Any]] = {}
    run = Autotuner.run
    with (
        driver.active(found) as recorder,
        torch_cuda.answered(found),
        _choosing_once(recorder, run),
    ):
        for name in names:
            outcome = _one(name, recorder)
            rows[name] = {
                "status": outcome.status,
                "detail": outcome.detail,
                "samples": {key: list(row) for key, row in outcome.samples.items()},
            }
    return rows


@contextmanager
def _choosing_once(recorder: Any, run: Any) -> Iterator[None]:
    """Autotuners as on a card: each chooses at its first call, and looks its choice up afterwards.

    The first configuration that compiles and fits is chosen. While kernels are only read, the
    recorder looks through the whole space at each launch, which takes longer than the rest.
    """
    from triton.runtime.autotuner import Autotuner

    before: dict[Any, dict[Any, Any]] = {}
    chosen: dict[Any, Any] = {}

    def bench(tuner: Any, *args: Any, config: Any, **meta: Any) -> list[float]:
        before.setdefault(tuner, dict(tuner.cache))
        if chosen.get(tuner) is tuner.nargs:  # of this call
            return [math.inf] * 3
        failures = recorder.failures
        count = len(failures)
        full = {**tuner.nargs, **meta, **config.all_kwargs()}
        if config.pre_hook is not None:
            config.pre_hook(full)
        tuner.fn.run(*args, **meta, **config.all_kwargs())
        if len(failures) > count:
            del failures[count:]
            return [math.inf] * 3
        chosen[tuner] = tuner.nargs
        return [0.0] * 3

    replaced = Autotuner.run, Autotuner._bench
    Autotuner.run, Autotuner._bench = run, bench
    try:
        yield
    finally:
        Autotuner.run, Autotuner._bench = replaced
        for tuner, cache in before.items():
            tuner.cache = cache


def _one(name: str, recorder: Any) -> Outcome:
    workload = load_workloads().get(name)
    if (absent := measuring.missing(workload)) is not None:
        return absent
    inputs = workload.inputs("cpu", values="none")

    def call() -> object:
        recorder.launches.clear()
        return workload.call(inputs)

    try:
        taken = batches(call)
    except Exception as error:  # the code under test may raise anything
        return Outcome(name, measuring.status_of(error), measuring.first_line(error))
    if recorder.failures:
        failure = recorder.failures.pop()
        return Outcome(name, "failed", f"{failure.kernel}: {failure.error}")
    if not recorder.launches:
        return Outcome(name, "failed", "the call launched nothing")
    return Outcome(name, "ok", samples={"host_us": tuple(taken)})


# Only autotuned kernels are called otherwise since, and none of ours is.
METHOD_VERSION = version("host-984cdb59d77d", "fb8891b07296", method_hash(__file__))
