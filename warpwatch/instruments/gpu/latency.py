"""How long one call takes on the GPU: samples, when they suffice, and which do not count.

Two methods, never compared: *cold* clears the caches before each sample, as ``ncu`` does; *warm*
repeats the call. Both time the device alone. A sample taken while the card was throttled is set
apart; sampling goes on until the median is known well enough, or says that time ran out.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from warpwatch.instruments.gpu.card.interface import Call, Clocks, Gpu
from warpwatch.instruments.method import method_hash

Method = Literal["cold", "warm"]
METHODS: tuple[Method, ...] = ("cold", "warm")


@dataclass(frozen=True)
class Limits:
    """When to stop. ``target`` is the relative half-width of the median's 95 % interval."""

    target: float = 0.004
    min_samples: int = 15
    max_samples: int = 80
    seconds: float = 3.0
    warm_up_seconds: float = 0.05


# A warm sample repeats the call until the events' own cost is small beside it.
WARM_SAMPLE_US = 300.0
MAX_CALLS = 64
# No launch is shorter: less than this between the events means that nothing ran.
MIN_CALL_US = 0.2
# A sample whose clock fell this far below the others' ran on another card, so to speak.
CLOCK_SHARE = 0.75
# Two groups of samples are two modes when they stand this many spreads apart.
MODE_DISTANCE = 6.0


@dataclass(frozen=True)
class Sample:
    """One call's time, with the state of the card it was taken in."""

    us: float
    held: bool = True
    spin_mhz: float | None = None
    clocks: Clocks | None = None

    @property
    def mhz(self) -> float | None:
        """The SM clock: counted on the SM where that is possible, else the driver's word."""
        if self.spin_mhz is not None:
            return self.spin_mhz
        return self.clocks.sm_mhz if self.clocks is not None else None


@dataclass(frozen=True)
class Latency:
    """The time of one call. ``us`` is the median of ``samples``; ``set_apart`` were throttled.

    When most samples were throttled there is nothing to set apart: then ``throttled`` names why
    and ``samples`` holds them all. That is how a card at its power limit runs heavy kernels, no
    accident; ``notes`` are what speaks against taking the number at its word.
    """

    method: Method
    us: float
    interval_us: tuple[float, float]
    spread: float
    samples: tuple[Sample, ...]
    set_apart: tuple[Sample, ...] = ()
    timed_out: bool = False
    throttled: str = ""
    notes: tuple[str, ...] = field(default=())

    @property
    def mhz(self) -> float | None:
        """Median SM clock the samples ran at."""
        known = [sample.mhz for sample in self.samples if sample.mhz is not None]
        return statistics.median(known) if known else None

    @property
    def unstable(self) -> bool:
        """Whether something speaks against taking this number at its word."""
        return bool(self.notes)

    @property
    def remarks(self) -> tuple[str, ...]:
        """The notes, and the throttling."""
        return (*self.notes, *([f"throttled: {self.throttled}"] if self.throttled else []))


class Sampler:
    """Takes samples of one call and says when they suffice."""

    def __init__(self, gpu: Gpu, call: Call, method: Method, limits: Limits | None = None) -> None:
        self.gpu, self.call, self.method = gpu, call, method
        self.limits = limits or Limits()
        self.samples: list[Sample] = []
        # The first run compiles and fills caches; it is not a sample.
        gpu.run(call, calls=1, cold=False)
        self._warm_up()

    def _warm_up(self) -> None:
        begin = self.gpu.now_s()
        interval = self.gpu.run(self.call, calls=1, cold=False)
        while self.gpu.now_s() - begin < self.limits.warm_up_seconds:
            calls = max(1, min(MAX_CALLS, math.ceil(2000 / max(interval.elapsed_us, 1))))
            interval = self.gpu.run(self.call, calls=calls, cold=False)
        one_us = max(interval.elapsed_us / interval.calls, 0.5)
        repeat = math.ceil(WARM_SAMPLE_US / one_us) if self.method == "warm" else 1
        self.calls = max(1, min(MAX_CALLS, repeat))

    def take(self) -> Sample:
        interval = self.gpu.run(self.call, calls=self.calls, cold=self.method == "cold")
        # A cold call is alone between its events: what they cost is taken off. Repeated warm
        # calls carry their share of it.
        us = (interval.elapsed_us - self.gpu.overhead_us()) / interval.calls
        if not us > MIN_CALL_US:
            raise ValueError(
                f"a sample of {interval.elapsed_us:.2f} us is not longer than the events around "
                f"it ({self.gpu.overhead_us():.2f} us): the call launched nothing on this stream"
            )
        sample = Sample(us, interval.held, interval.spin_mhz, interval.clocks)
        self.samples.append(sample)
        return sample

    @property
    def enough(self) -> bool:
        clean, _ = set_throttled_apart(self.samples)
        if len(self.samples) >= self.limits.max_samples:
            return True
        if len(clean) < self.limits.min_samples:
            return False
        values = [sample.us for sample in clean]
        low, high = median_interval(values)
        narrow = (high - low) / 2 <= self.limits.target * statistics.median(values)
        return narrow and spread_is_settled(values)

    def result(self, *, timed_out: bool = False) -> Latency:
        return summarize(self.method, self.samples, timed_out=timed_out)


def measure(gpu: Gpu, call: Call, method: Method, limits: Limits | None = None) -> Latency:
    """Sample until the median is known to ``limits.target``, at most ``limits.seconds`` long."""
    sampler = Sampler(gpu, call, method, limits)
    begin = gpu.now_s()
    while not sampler.enough:
        if sampler.samples and gpu.now_s() - begin > sampler.limits.seconds:
            return sampler.result(timed_out=True)
        sampler.take()
    return sampler.result()


def interleave(
    gpu: Gpu, calls: Mapping[str, Call], method: Method, limits: Limits | None = None, seed: int = 0
) -> dict[str, Latency]:
    """Sample several calls in one process in balanced random order.

    Each round takes every call once in a random order and the next round backwards, so that a
    drift and a neighbour's heat fall on all alike. A fixed order has "found" 30 % between copies
    of one kernel.
    """
    order = random.Random(seed)
    samplers = {name: Sampler(gpu, call, method, limits) for name, call in calls.items()}
    limit_s = sum(sampler.limits.seconds for sampler in samplers.values())
    begin = gpu.now_s()
    timed_out = False
    while not timed_out and not all(sampler.enough for sampler in samplers.values()):
        names = list(samplers)
        order.shuffle(names)
        for name in (*names, *reversed(names)):
            samplers[name].take()
        timed_out = gpu.now_s() - begin > limit_s
    return {
        name: sampler.result(timed_out=timed_out and not sampler.enough)
        for name, sampler in samplers.items()
    }


def summarize(method: Method, samples: Sequence[Sample], *, timed_out: bool = False) -> Latency:
    """The median of the clean samples, with everything that speaks against it as notes."""
    clean, apart = set_throttled_apart(samples)
    throttled = ""
    if len(clean) < len(apart):
        reasons = sorted({word for s in apart if s.clocks for word in s.clocks.throttled})
        throttled = ", ".join(reasons) or "low clock"
        clean, apart = list(samples), []
    values = [sample.us for sample in clean]
    median = statistics.median(values)
    spread = relative_spread(values)
    notes = []
    if timed_out:
        notes.append(f"time ran out after {len(samples)} samples")
    if not all(sample.held for sample in clean):
        notes.append("launch gaps are in the time: the call waits for the GPU")
    if (modes := two_modes(values)) is not None:
        notes.append(f"two modes, {modes[0]:.4g} and {modes[1]:.4g} us")
    if drifts(values):
        notes.append("the samples drift")
    return Latency(
        method,
        median,
        median_interval(values),
        spread,
        tuple(clean),
        tuple(apart),
        timed_out,
        throttled,
        tuple(notes),
    )


def set_throttled_apart(samples: Sequence[Sample]) -> tuple[list[Sample], list[Sample]]:
    """Clean samples, and those taken while the card said it was throttled or ran far slower."""
    clocks = [sample.mhz for sample in samples if sample.mhz is not None]
    usual = statistics.median(clocks) if clocks else 0.0
    clean: list[Sample] = []
    apart: list[Sample] = []
    for sample in samples:
        slow = sample.mhz is not None and sample.mhz < CLOCK_SHARE * usual
        told = sample.clocks is not None and bool(sample.clocks.throttled)
        (apart if slow or told else clean).append(sample)
    return clean, apart


def relative_spread(values: Sequence[float]) -> float:
    """Robust standard deviation over the median."""
    median = statistics.median(values)
    return 1.4826 * statistics.median([abs(value - median) for value in values]) / median


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the median, from the order of the values alone."""
    ordered = sorted(values)
    n = len(ordered)
    below = max(0, math.floor(n / 2 - 0.98 * math.sqrt(n)) - 1)
    return ordered[below], ordered[n - 1 - below]


def spread_is_settled(values: Sequence[float]) -> bool:
    """Whether the last quarter of the samples left the spread as it was."""
    if len(values) < 8:
        return False
    now, before = relative_spread(values), relative_spread(values[: len(values) * 3 // 4])
    return abs(now - before) <= max(0.25 * now, 0.001)


def two_modes(values: Sequence[float]) -> tuple[float, float] | None:
    """The centres of two modes with at least a fifth of the values each, if there are two."""
    ordered = sorted(values)
    n = len(ordered)
    if n < 10:
        return None
    fifth = max(2, n // 5)
    gap, at = max((ordered[i] - ordered[i - 1], i) for i in range(fifth, n - fifth + 1))
    low, high = ordered[:at], ordered[at:]
    within = max(relative_spread(low), relative_spread(high), 1e-4) * statistics.median(ordered)
    distance = statistics.median(high) - statistics.median(low)
    if distance > MODE_DISTANCE * within and gap > within:
        return statistics.median(low), statistics.median(high)
    return None


def drifts(values: Sequence[float]) -> bool:
    """Whether the last third stands clearly apart from the first."""
    third = len(values) // 3
    if third < 4:
        return False
    first, last = values[:third], values[-third:]
    moved = abs(statistics.median(last) - statistics.median(first)) / statistics.median(values)
    noise = max(relative_spread(first), relative_spread(last), 1e-4)
    return moved > 0.01 and moved > 3 * noise


def check_floor(us: float, floor_us: float, what: str) -> None:
    """``ValueError`` for a time no hardware can reach: work was skipped or the timer is wrong."""
    if us < 0.98 * floor_us:
        raise ValueError(
            f"{what}: {us:.2f} us is below the roofline floor of {floor_us:.2f} us: "
            "expected a call that does the workload's work, so this is an error, not a record"
        )


METHOD_VERSION = "latency-" + method_hash(
    __file__, str(Path(__file__).with_name("card") / "through_torch.py")
)
