"""The measuring process: a request on stdin, what is begun and each outcome a line on stdout.

It is a process of its own so that a hanging kernel can be ended and a lost device left behind.
``mode`` is ``latency``, ``beside`` (a workload and its peers, interleaved), ``ahead`` (one call of
each, so that what it compiles is on disk), ``counters`` (each workload's call between two marks,
for a profiler that watches this process), ``dispatches`` (the same for AMD's), ``sampled`` (repeats
the call while the driver samples its counters), ``configurations`` (compiles a workload's choices,
each under its own name; needs no GPU), ``host`` (what a call costs the host; needs no GPU either),
``choices`` (times them interleaved) or ``staying`` (keeps workloads ready from one request to
the next and takes the ``steps`` of each). ``until`` is
the time (of ``time.time``) after which nothing more is begun: the process ends as always, so a
profiler writes its report.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from warpwatch import devices
from warpwatch.config import choices, isolation
from warpwatch.config import package as configuration
from warpwatch.config.end_with_parent import end_with
from warpwatch.instruments.gpu import ceilings, host, latency, measuring, staying
from warpwatch.instruments.gpu.card import carve_outs, clocks
from warpwatch.instruments.gpu.card.interface import GpuError
from warpwatch.instruments.gpu.card.software import FakeGpu, FakeWorkload
from warpwatch.instruments.gpu.latency import Limits
from warpwatch.instruments.outcome import Outcome
from warpwatch.instruments.peers import interleave
from warpwatch.instruments.peers import registry as peers

from . import tuning
from .session import group

COUNTER_REPEATS = 3

Measure = Callable[[list[str]], Iterable[Outcome]]


def main() -> int:
    for argument in sys.argv[1:]:
        if argument.startswith("--parent="):
            # A call that hangs would keep the card busy for ever, beside what is measured next.
            end_with(int(argument.partition("=")[2]))
    isolation.measured()
    # What the measured code prints, when it is imported too, must not come between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if "--ahead" in sys.argv[1:]:
        _make_ready()
        _tell(answers, {"ready": True})

    def begin(names: Sequence[str]) -> None:
        _tell(answers, {"begin": list(names)})

    kept: list[staying.Staying] = []
    while line := sys.stdin.readline():
        request: dict[str, Any] = json.loads(line)
        try:
            prepare = _scripted if "scripts" in request else _real
            measure = prepare(request, answers, begin, kept)
        except GpuError as error:
            print(error, file=sys.stderr)
            return 1
        except Exception as error:
            # Whoever reads the last line would get torch's advice on how to debug kernels.
            traceback.print_exc()
            print(_unusable(error), file=sys.stderr)
            return 1
        if not _answer(request, answers, begin, measure, kept):
            return 1  # the context is gone: a fresh process takes what is left
    return 0


def _answer(
    request: dict[str, Any],
    answers: TextIO,
    begin: interleave.Begin,
    measure: Measure,
    kept: Sequence[staying.Staying],
) -> bool:
    """Measure what ``request`` names; whether the device is still there afterwards."""
    last = request["workloads"][-1:]
    for names, in_time in _in_time(_groups(request), request.get("until", math.inf)):
        if not in_time:
            for name in names:
                late = Outcome(name, "not tried", "time was up")
                _tell(answers, {"outcome": late.to_json()})
            continue
        begin(names)
        lost = False
        for outcome in measure(names):
            if "lock" in request:  # before it is told: who has the last outcome ends this process
                choices.write(Path(request["lock"]), choices.made_here(_target_here()))
            if kept and [outcome.workload] == last:
                kept[0].rest()  # before it is told: the next process is visited then
            _tell(answers, {"outcome": outcome.to_json()})
            lost = lost or outcome.status == "device lost"
            if outcome.status == "hung":
                os._exit(1)  # to end as always would wait for the GPU
        if lost:
            return False
    return True


def _target_here() -> str:
    """The target that the card of this process is, as configurations call it."""
    import torch

    if torch.version.hip:
        return str(torch.cuda.get_device_properties(0).gcnArchName).split(":")[0]
    major, minor = torch.cuda.get_device_capability(0)
    return f"sm_{major}{minor}"


def _make_ready() -> None:
    """What imports and a context on the GPU cost, before the request comes."""
    for name in ("torch", "triton", configuration.load().name):
        try:
            importlib.import_module(name)
        except Exception as error:  # whoever asks is told again when the workload needs it
            print(f"import {name}: {error}", file=sys.stderr)
    torch = sys.modules.get("torch")
    try:
        if torch is not None and torch.cuda.is_available():
            torch.zeros(1, device="cuda")
            torch.cuda.synchronize()
    except Exception as error:  # the request meets it again
        print(_unusable(error), file=sys.stderr)


def _unusable(error: Exception) -> str:
    """One line of a GPU that cannot be used, such as one that another process has for itself."""
    why = f"this GPU cannot be used: {measuring.first_line(error)}"
    busy = "busy or unavailable" in why  # the driver's words in exclusive mode
    return f"{why}: another process has it for itself, end it or wait" if busy else why


def _groups(request: dict[str, Any]) -> list[list[str]]:
    """What is measured together."""
    groups: dict[str, list[str]] = {}
    for name in request["workloads"]:
        groups.setdefault(group(request["mode"], name), []).append(name)
    return list(groups.values())


def _in_time(groups: list[list[str]], until: float) -> Iterator[tuple[list[str], bool]]:
    """Each group, and whether there is time for it: as much as the longest so far took."""
    longest = 0.0
    for names in groups:
        begin = time.time()
        in_time = begin + longest < until
        yield names, in_time
        longest = max(longest, time.time() - begin)


def _tell(answers: TextIO, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _real(
    request: dict[str, Any],
    answers: TextIO,
    begin: interleave.Begin,
    kept: list[staying.Staying],
) -> Measure:
    mode = request["mode"]
    limits = Limits(**request.get("limits", {}))
    if kept:  # what is said of the card was said before
        return _kept(kept[0], request, limits)
    if mode == "configurations":
        return lambda names: (tuning.compile_here(request, name) for name in names)
    if mode == "host":
        return lambda names: (_host_time(name) for name in names)
    if mode == "ahead":
        processes = int(request.get("processes", 1))
        return lambda names: measuring.call_each_once(list(map(peers.get, names)), processes)
    before = clocks.computing()
    from warpwatch.instruments.gpu.card.through_torch import TorchGpu

    gpu = TorchGpu()
    known = devices.identify(gpu.card.name)
    if known is not None and known.cache_bytes > gpu.card.cache_bytes:
        gpu = TorchGpu(cache_bytes=known.cache_bytes)
    notes = (_shared(request, gpu.uuid, before, clocks.computing()), _kept_warm())
    message = {"card": vars(gpu.card), "note": "; ".join(filter(None, notes))}
    if mode in ("latency", "beside", "choices", "staying"):
        products, streams = ceilings.torch_products(), ceilings.torch_streams()
        found = ceilings.measured_on(gpu, products, streams, _measured_before(request))
        message |= {} if found is None else {"ceilings": found.to_json()}
    _tell(answers, message)
    get = peers.get
    if mode in ("latency", "staying"):
        kept.append(staying.Staying(gpu, count=_Counter(gpu.clear_caches)))
        return _kept(kept[0], request, limits)
    if mode in ("beside", "choices"):
        of = functools.partial(tuning.chosen_here, request) if mode == "choices" else get
        seed = request.get("seed", 0)
        return lambda names: interleave.measure_beside(
            gpu, [of(name) for name in names], limits=limits, seed=seed, begin=begin
        )
    if mode == "counters":
        from warpwatch.instruments.counters.ncu import profile_between_marks

        return lambda names: (profile_between_marks(get(name), COUNTER_REPEATS) for name in names)
    if mode == "dispatches":
        from warpwatch.instruments.counters import rocprof

        return lambda names: (
            rocprof.profile_between_marks(get(name), COUNTER_REPEATS) for name in names
        )
    from warpwatch.instruments.counters.gpm import sample_tensor_pipe

    return lambda names: (sample_tensor_pipe(get(name), gpu.uuid) for name in names)


class _Counter:
    """Reads the counters of a call in this process; where they are not to be had, says so.

    A card serves one open profiler: this one is closed at the end of each request, so that another
    process can count next.
    """

    def __init__(self, clear: Callable[[], None]) -> None:
        self._clear = clear
        self._opened: Any = None
        self._refused = ""

    def __call__(self, call: Callable[[], object]) -> Outcome:
        from warpwatch.instruments.counters import range_profiler
        from warpwatch.instruments.counters.ncu import CountersRefusedError

        if not self._refused:
            try:
                self._opened = self._opened or range_profiler.RangeProfiler()
                return Outcome("", "ok", "", range_profiler.read(self._opened, call, self._clear))
            except CountersRefusedError as error:
                self._refused = f"{range_profiler.REFUSED}{error}"
        return Outcome("", "ok", self._refused)

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None


def _kept(kept: staying.Staying, request: dict[str, Any], limits: Limits) -> Measure:
    """What one process may be asked again and again: the counters of what it timed before, too."""
    if request["mode"] == "latency":
        methods = request["methods"]
        return lambda names: (
            measuring.measure(kept.gpu, peers.get(name), methods=methods, limits=limits)
            for name in names
        )
    steps = request["steps"]
    return lambda names: (kept.take(peers.get(name), steps, limits) for name in names)


def _host_time(name: str) -> Outcome:
    row = host.measure([name])[name]
    samples = {metric: tuple(values) for metric, values in row["samples"].items()}
    return Outcome(name, row["status"], row["detail"], samples)


def _measured_before(request: dict[str, Any]) -> devices.Ceilings | None:
    known = request.get("measured_ceilings")
    return None if known is None else devices.Ceilings.from_json(known)


def _kept_warm() -> str:
    import torch

    torch.cuda.synchronize()  # the driver is asked of this process's context: let there be one
    return carve_outs.refused(None if torch.version.hip else ctypes.CDLL("libcuda.so.1"))


def _shared(
    request: dict[str, Any], uuid: str, before: clocks.Computing, after: clocks.Computing
) -> str:
    """Who else is on the card: of those ``before`` this process had a context, and not made ready
    by who asks. Who was itself made ready had one, and is among the ``ours`` of the request."""
    if "--ahead" in sys.argv[1:]:
        before = after if "ours" in request else {}
    return clocks.shared(uuid, before, after, frozenset(request.get("ours", ())))


def _scripted(
    request: dict[str, Any], answers: TextIO, begin: interleave.Begin, _: list[staying.Staying]
) -> Measure:
    """Workloads of a software GPU: what hangs here really hangs. ``computing`` are the processes on
    it before and after this one came."""
    before, after = ({FakeGpu.uuid: frozenset(each)} for each in request.get("computing", ((), ())))
    message: dict[str, Any] = {"note": _shared(request, FakeGpu.uuid, before, after)}
    if "ceilings" in request:  # how long its product and its stream take
        card = FakeGpu()
        card.script.us = request["ceilings"]
        products, stream = {"fp16": lambda _: _nothing}, [lambda n: (_nothing, n)]
        found = ceilings.measured_on(card, products, stream, _measured_before(request))
        message |= {} if found is None else {"ceilings": found.to_json()}
    _tell(answers, message)
    limits = Limits(**request.get("limits", {}))
    scripts: dict[str, dict[str, Any]] = request["scripts"]

    def measure(name: str) -> Outcome:
        gpu = FakeGpu()
        workload = FakeWorkload(name, gpu, **scripts[name])
        steps = request.get("steps", ("time",))
        if "time" not in steps or "count" in steps:
            return workload.counted() if "count" in steps else Outcome(name, "ok")
        if request["mode"] == "counters":
            workload.call({})
            return Outcome(name, "ok", evidence={"marks": COUNTER_REPEATS})
        try:
            measured = latency.measure(gpu, lambda: workload.call({}), "cold", limits)
        except Exception as error:
            return measuring.failure(name, error)
        row = tuple(sample.us for sample in measured.samples)
        return Outcome(name, "ok", "; ".join(measured.notes), {"latency_cold": row})

    def together(names: list[str]) -> Iterable[Outcome]:
        gpu = FakeGpu()
        rivals: list[Any] = [FakeWorkload(name, gpu, **scripts[name]) for name in names]
        # Their answers are no tensors: nothing about them is right or wrong.
        return interleave.measure_beside(
            gpu, rivals, limits=limits, begin=begin, check=lambda *_: 0.0
        )

    return (
        together if request["mode"] in ("beside", "choices") else lambda names: map(measure, names)
    )


def _nothing() -> None:
    """A call whose time a script tells."""


if __name__ == "__main__":
    sys.exit(main())
