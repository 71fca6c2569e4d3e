"""One workload by several implementations: on the same inputs, interleaved, cold.

Who gives a wrong answer or fails is left out with one line; the others go on. Whose call comes next
is told before it is made, so that one that hangs or ends the process is known by name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from warpwatch.instruments.gpu import accuracy, latency, measuring
from warpwatch.instruments.gpu.card.interface import Call, Card, Gpu, Interval
from warpwatch.instruments.gpu.latency import Latency, Limits
from warpwatch.instruments.outcome import Outcome

if TYPE_CHECKING:
    from warpwatch.workload.base import Inputs, Workload

Begin = Callable[[Sequence[str]], object]
Check = Callable[["Workload", "Inputs", Any, Any], float]
Ready = dict[str, tuple["Workload", Call, float]]

# Who takes this many times as long as the fastest decides nothing: a few samples place it.
FAR_BEHIND = 1.5
FEW_SAMPLES = 8


def measure_beside(
    gpu: Gpu,
    workloads: Sequence[Workload],
    *,
    torch_device: str = "cuda",
    limits: Limits | None = None,
    seed: int = 0,
    begin: Begin = lambda _: None,
    check: Check = accuracy.check,
) -> Iterator[Outcome]:
    """An outcome for each of ``workloads``, which have the first one's inputs and formula.

    A lost device ends it: after that outcome those without one are another process's. ``begin``
    hears the names of what comes next.
    """
    first = workloads[0]
    try:
        inputs = first.inputs(torch_device, seed=0)
        truth = first.reference(inputs, "float64")
    except Exception as raised:  # most likely they do not fit into the memory
        yield from _all_failed(workloads, raised)
        return
    ready: Ready = {}
    for workload in workloads:
        begin([workload.name])
        if (absent := measuring.missing(workload)) is not None:
            yield absent
            continue
        try:
            error = check(workload, inputs, workload.call(inputs), truth)
        except Exception as raised:  # a peer may raise anything
            yield (failed := measuring.failure(workload.name, raised))
            if failed.status == "device lost":
                return
        else:
            ready[workload.name] = workload, functools.partial(workload.call, inputs), error
    del truth
    taken: dict[str, Latency] = {}
    while ready.keys() != taken.keys():
        watched = _Watched(gpu, {call: name for name, (_, call, _) in ready.items()}, begin)
        calls = {name: call for name, (_, call, _) in ready.items()}
        try:
            taken = interleave(watched, calls, limits, seed)
        except Exception as raised:
            # The others are timed anew: one left out half-way would leave their order unbalanced.
            yield (failed := measuring.failure(watched.at, raised))
            if failed.status == "device lost":
                return
            del ready[watched.at]
    yield from _checked_again(gpu, first, ready, taken, torch_device, begin, check)


def interleave(
    gpu: Gpu, calls: Mapping[str, Call], limits: Limits | None = None, seed: int = 0
) -> dict[str, Latency]:
    """Cold latencies of ``calls``, the first of them ours. All are sampled a few times, then we and
    who is not far behind the fastest until the medians are known as well as ``limits`` ask."""
    limits = limits or Limits()
    few = replace(limits, min_samples=FEW_SAMPLES, max_samples=FEW_SAMPLES)
    taken = latency.interleave(gpu, calls, "cold", few, seed)
    best = min((one.us for one in taken.values()), default=0.0)
    ours = next(iter(calls), "")
    near = {
        name: call
        for name, call in calls.items()
        if name == ours or taken[name].us <= FAR_BEHIND * best
    }
    for name in taken.keys() - near.keys():
        note = f"{measuring.FAR_BEHIND_NOTE}{len(taken[name].samples)} samples"
        taken[name] = replace(taken[name], notes=(*taken[name].notes, note))
    return taken | latency.interleave(gpu, near, "cold", limits, seed + 1)


def _checked_again(
    gpu: Gpu,
    first: Workload,
    ready: Ready,
    taken: Mapping[str, Latency],
    torch_device: str,
    begin: Begin,
    check: Check,
) -> Iterator[Outcome]:
    begin(list(ready))
    fresh: Inputs = {}
    truth: Any = None
    unchecked = ""
    try:
        fresh = first.inputs(torch_device, seed=1)
        truth = first.reference(fresh, "float64")
    except Exception as raised:
        if measuring.status_of(raised) == "device lost":
            yield from _all_failed([workload for workload, _, _ in ready.values()], raised)
            return
        unchecked = measuring.unchecked(raised)
    for name, (workload, call, error) in ready.items():
        begin([name])

        def again(workload: Workload = workload) -> float:
            return check(workload, fresh, workload.call(fresh), truth)

        try:
            outcome = measuring.checked(
                gpu, workload, call, {"cold": taken[name]}, error, unchecked or again
            )
        except Exception as raised:
            outcome = measuring.failure(name, raised)
        yield outcome
        if outcome.status == "device lost":
            return


def _all_failed(workloads: Sequence[Workload], raised: Exception) -> Iterator[Outcome]:
    """The inputs and the reference are everybody's."""
    failed = measuring.failure("", raised)
    for workload in workloads:
        yield Outcome(workload.name, failed.status, f"inputs and reference: {failed.detail}")


class _Watched:
    """The GPU, telling whose call it is about to run; ``at`` is whose it ran last."""

    def __init__(self, gpu: Gpu, names: Mapping[Call, str], begin: Begin) -> None:
        self._gpu, self._names, self._begin = gpu, names, begin
        self.at = ""

    @property
    def card(self) -> Card:
        return self._gpu.card

    def run(self, call: Call, *, calls: int, cold: bool) -> Interval:
        if self.at != self._names[call]:
            self.at = self._names[call]
            self._begin([self.at])
        return self._gpu.run(call, calls=calls, cold=cold)

    def overhead_us(self) -> float:
        return self._gpu.overhead_us()

    def now_s(self) -> float:
        return self._gpu.now_s()
