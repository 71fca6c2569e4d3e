"""A GPU made of software: scripted clock, throttling, drift, modes, failures, a lost device.

Every rule of measuring is tested on it, on machines without a card. It keeps its own time, so a
test of a three-second limit takes no time.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from warpwatch.instruments.counters.range_profiler import REFUSED
from warpwatch.instruments.outcome import Outcome

from .interface import Call, Card, Clocks, DeviceLostError, GpuError, Interval, OutOfMemoryError


@dataclass
class Script:
    """What the card does, run by run. ``*_at`` count runs from 0; ``modes`` are (factor, share).

    ``drift_per_run`` lengthens each run by that share of the first. Throttling lowers the clock
    to ``throttled_mhz`` during ``throttled_runs`` and names ``reason``.
    """

    us: float = 100.0
    cold_us: float | None = None
    noise: float = 0.002
    drift_per_run: float = 0.0
    modes: tuple[tuple[float, float], ...] = ((1.0, 1.0),)
    mhz: float = 1980.0
    throttled_mhz: float = 1400.0
    throttled_runs: range = field(default_factory=lambda: range(0))
    reason: str = "power cap"
    tells_reason: bool = True
    fails_at: int | None = None
    lost_at: int | None = None
    out_of_memory_at: int | None = None
    waits_for_gpu: bool = False


class FakeGpu:
    """Answers :class:`~warpwatch.instruments.gpu.card.interface.Gpu`. A call is
    run (it may set :attr:`script`, or fail); its time is the script's, of that call or the GPU."""

    events_us = 2.0
    uuid = "GPU-fake"

    def __init__(self, script: Script | None = None, seed: int = 0, name: str = "Fake GPU") -> None:
        self.script = script or Script()
        self.scripts: dict[Call, Script] = {}
        self.runs = 0
        self.order: list[Call] = []
        self._random = random.Random(seed)
        self._now_s = 0.0
        self._name = name

    @property
    def card(self) -> Card:
        return Card(self._name, 132, 60 << 20, 141 << 30, "0.0", {"torch": "none"})

    def add(self, script: Script) -> Call:
        """A call that behaves as ``script`` says."""

        def call() -> None:
            return None

        self.scripts[call] = script
        return call

    def now_s(self) -> float:
        return self._now_s

    def overhead_us(self) -> float:
        return self.events_us

    def run(self, call: Call, *, calls: int, cold: bool) -> Interval:
        run = self.runs
        self.runs += 1
        self.order.append(call)
        for _ in range(calls):
            call()
        script = self.scripts.get(call, self.script)
        self._fail(script, run)
        throttled = run in script.throttled_runs
        mhz = script.throttled_mhz if throttled else script.mhz
        us = script.cold_us if cold and script.cold_us is not None else script.us
        us *= script.mhz / mhz * (1 + script.drift_per_run * run)
        us *= self._random.choices(*zip(*script.modes, strict=True))[0]
        us *= self._random.lognormvariate(0, script.noise)
        elapsed_us = us * calls + self.events_us
        self._now_s += elapsed_us / 1e6 + 1e-3
        reasons = (script.reason,) if throttled and script.tells_reason else ()
        clocks = Clocks(mhz, 3201, 400.0, 50.0, reasons)
        return Interval(elapsed_us, calls, not script.waits_for_gpu, mhz, clocks)

    def _fail(self, script: Script, run: int) -> None:
        failures: tuple[tuple[int | None, Callable[[], GpuError]], ...] = (
            (script.fails_at, lambda: GpuError("too many resources requested for launch")),
            (script.out_of_memory_at, lambda: OutOfMemoryError("12 GiB asked for, 3 GiB free")),
            (script.lost_at, lambda: DeviceLostError("the GPU has fallen off the bus")),
        )
        for at, error in failures:
            if at is not None and run >= at:
                raise error()


class FakeWorkload:
    """A workload whose calls make ``gpu`` follow its own script, hang at call ``hangs`` or end the
    process at call ``crashes`` (from 1; ``True`` is the first). Its answers are nothing. Without
    ``counters``, samples by metric, the driver refuses them."""

    kernel, dtype, missing = "fake", "fp16", ""
    flops = bytes_moved = 0

    def __init__(
        self,
        name: str,
        gpu: FakeGpu,
        *,
        hangs: int = 0,
        crashes: int = 0,
        counters: Mapping[str, Sequence[float]] | None = None,
        **script: Any,
    ) -> None:
        self.name, self.gpu, self.script = name, gpu, Script(**script)
        self.hangs, self.crashes, self.calls = hangs, crashes, 0
        self.counters = counters

    def inputs(self, device: str, seed: int = 0) -> dict[str, Any]:
        return {}

    def call(self, inputs: dict[str, Any]) -> None:
        self.calls += 1
        self.gpu.script = self.script
        if self.calls == self.hangs:
            time.sleep(3600)
        if self.calls == self.crashes:
            os._exit(139)

    def counted(self) -> Outcome:
        """What a profiler in this process says of a call."""
        if self.counters is None:
            return Outcome(self.name, "ok", f"{REFUSED}a software GPU has none")
        samples = {metric: tuple(row) for metric, row in self.counters.items()}
        return Outcome(self.name, "ok", "", samples)

    def reference(self, inputs: dict[str, Any], dtype: str | None = None) -> None:
        return None
