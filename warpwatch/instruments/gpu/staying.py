"""Workloads that one process keeps ready, and reads again each time it is asked.

A process costs seconds to start and a sample microseconds: one that stays is read in many short
visits between those of others, so that a drift of the card falls on all alike.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from warpwatch.instruments.gpu.card.interface import Gpu
from warpwatch.instruments.outcome import Outcome
from warpwatch.judge.model.short_calls import SHORT_US

from . import accuracy, latency, measuring, off_kernel
from .latency import Latency, Limits

if TYPE_CHECKING:
    from warpwatch.workload.base import Workload

# ``ready`` makes the inputs and calls once, ``check`` holds the answer against the reference,
# ``time`` samples the cold latency, ``count`` reads counters, ``again`` checks on fresh inputs.
Step = Literal["ready", "check", "time", "count", "again"]
# Inputs stay while this share of the card's memory is free: many processes share it.
FREE_SHARE = 0.25
# The cycles of a short call depend on where its inputs lie, so they are counted on so many copies.
COPIES = 4


class Count(Protocol):
    """Reads the counters of a call, from the first until it is closed."""

    def __call__(self, call: Callable[[], object], /) -> Outcome: ...

    def close(self) -> None: ...


@dataclass
class _Ready:
    inputs: Any
    call: Callable[[], object]
    timed: Latency | None = None  # the last one


class Staying:
    """What a process has ready on ``gpu``. ``count`` reads the counters of a call, where it can."""

    def __init__(self, gpu: Gpu, torch_device: str = "cuda", count: Count | None = None) -> None:
        self.gpu = gpu
        self._torch_device = torch_device
        self._count = count
        self._ready: dict[str, _Ready] = {}

    def take(self, workload: Workload, steps: Sequence[Step], limits: Limits) -> Outcome:
        """The outcome of ``steps``, in their order. Never raises for what the measured code does.

        Args:
            workload: What to measure, on inputs that stay from visit to visit where they have room.
            steps: What to do with it in this visit.
            limits: When sampling stops.

        Returns:
            Samples of all steps together; the first step that fails is the outcome.
        """
        if (absent := measuring.missing(workload)) is not None:
            return absent
        try:
            return self._take(workload, steps, limits)
        except Exception as error:  # the code under test may raise anything
            self._ready.pop(workload.name, None)
            gc.collect()
            return measuring.failure(workload.name, error)
        finally:
            self._make_room()

    def rest(self) -> None:
        """Hold nothing that another process may want while this one waits."""
        if self._count is not None:
            self._count.close()

    def _take(self, workload: Workload, steps: Sequence[Step], limits: Limits) -> Outcome:
        ready = self._ready.get(workload.name) or self._prepare(workload)
        samples: dict[str, tuple[float, ...]] = {}
        evidence: dict[str, Any] = {}
        notes: list[str] = []
        for step in steps:
            if step == "check":
                samples |= self._check(workload, ready)
            elif step == "time":
                ready.timed = measured = latency.measure(self.gpu, ready.call, "cold", limits)
                found = measuring.timed(self.gpu, workload, {"cold": measured})
                samples |= found[0]
                evidence |= found[1]
                notes += found[2]
            elif step == "again" and workload.has_reference:
                fresh = workload.inputs(self._torch_device, seed=1)
                error = accuracy.check(workload, fresh, workload.call(fresh))
                samples["relative_error"] = (*samples.get("relative_error", ()), error)
            elif step == "count" and self._count is not None:
                counted, said = self._counted(workload, ready, self._count)
                samples |= counted
                notes += said
        return Outcome(workload.name, "ok", "; ".join(notes), samples, evidence)

    def _counted(
        self, workload: Workload, ready: _Ready, count: Count
    ) -> tuple[dict[str, tuple[float, ...]], list[str]]:
        """The samples of all counters, and why there are none."""
        timed = ready.timed
        calls = [ready.call]
        if timed is not None and timed.us < SHORT_US:
            calls += [self._call_of(workload)[1] for _ in range(COPIES - 1)]
        found = [count(call) for call in calls]
        rows = [one.samples for one in found if one.samples]
        samples = {
            name: tuple(value for row in rows for value in row[name]) for name in (rows or [{}])[0]
        }
        if timed is not None:
            times = [one.us for one in timed.samples]
            samples |= off_kernel.of(times, timed.mhz, samples)
        return samples, list(dict.fromkeys(one.detail for one in found if one.detail))

    def _call_of(self, workload: Workload) -> tuple[Any, Callable[[], object]]:
        inputs = workload.inputs(self._torch_device, seed=0)
        return inputs, lambda: workload.call(inputs)

    def _prepare(self, workload: Workload) -> _Ready:
        ready = _Ready(*self._call_of(workload))
        ready.call()
        self._ready[workload.name] = ready
        return ready

    def _check(self, workload: Workload, ready: _Ready) -> dict[str, tuple[float, ...]]:
        samples: dict[str, tuple[float, ...]] = {}
        if workload.has_reference:
            samples["relative_error"] = (accuracy.check(workload, ready.inputs, ready.call()),)
        if hasattr(self.gpu, "peak_bytes"):
            samples["peak_bytes"] = (float(self.gpu.peak_bytes(ready.call)),)
        return samples

    def _make_room(self) -> None:
        """Others wait for their visit on the same card: what this process does not need, it gives
        back, and where memory is short its inputs too."""
        if self._torch_device != "cuda":
            return
        import torch

        try:
            torch.cuda.empty_cache()
            free, total = torch.cuda.mem_get_info()
            if free < FREE_SHARE * total:
                self._ready.clear()
                gc.collect()
                torch.cuda.empty_cache()
        except RuntimeError:  # the context is gone: the outcome says so
            self._ready.clear()
