"""The real GPU, through torch: CUDA and HIP.

The device is timed alone: a spinning kernel holds the GPU until the host has queued the whole
sample, so launch gaps never reach the events. That the GPU was still held is looked at after
queueing, not hoped for; if it was not, the hold is doubled and the sample taken again. A call that
the longest hold does not help waits for the GPU itself: it is held no more.

A second, short spin right after the call counts the SM clock: it is so many cycles long and events
time it. A card at its power limit lowers its clock within a heavy kernel, faster than the driver's
own reading follows.
"""

from __future__ import annotations

import ctypes
import time
import weakref
from functools import cached_property

import torch

from .clocks import Reader, amdsmi_reader, driver_version, nvml_reader
from .interface import Call, Card, DeviceLostError, GpuError, Interval, OutOfMemoryError, says_lost

# Clearing reads more than twice the last cache; reading leaves no dirty lines behind that the
# next kernel would have to write back.
CLEAR_FACTOR = 2.5
MIN_HOLD_US = 300.0
MAX_HOLD_US = 200_000.0
RETAKES = 4
CLOCK_SPIN_US = 60.0


class TorchGpu:
    """The current CUDA or HIP device. ``cache_bytes`` is the last cache level to be cleared."""

    def __init__(self, cache_bytes: int | None = None, index: int = 0) -> None:
        if not torch.cuda.is_available():
            raise GpuError("no GPU: torch sees neither a CUDA nor a HIP device")
        self._index = index
        torch.cuda.set_device(index)
        self._properties = torch.cuda.get_device_properties(index)
        self._cache_bytes = cache_bytes or int(self._properties.L2_cache_size)
        self._read = self._reader()
        self._hold_us = MIN_HOLD_US
        self._waits: weakref.ref[Call] | None = None  # its inputs are not kept for its sake
        self._cycles_per_us = float(getattr(self._properties, "clock_rate", 0) or 1_800_000) / 1000
        self._driver = None if torch.version.hip else ctypes.CDLL("libcuda.so.1")

    @property
    def uuid(self) -> str:
        return f"GPU-{getattr(self._properties, 'uuid', '')}"

    def _reader(self) -> Reader | None:
        return amdsmi_reader(self._index) if torch.version.hip else nvml_reader(self.uuid)

    @property
    def card(self) -> Card:
        software = {
            "torch": torch.__version__,
            "runtime": str(torch.version.hip or torch.version.cuda),
        }
        try:
            import triton

            software["triton"] = triton.__version__
        except ImportError:
            pass
        return Card(
            torch.cuda.get_device_name(self._index),
            self._properties.multi_processor_count,
            self._cache_bytes,
            self._properties.total_memory,
            driver_version(),
            software,
        )

    @cached_property
    def _clear_buffer(self) -> torch.Tensor:
        return torch.ones(int(CLEAR_FACTOR * self._cache_bytes) // 4, device="cuda")

    @cached_property
    def _clear_result(self) -> torch.Tensor:
        return torch.empty((), device="cuda")

    def clear_caches(self) -> None:
        """Push everything out of the caches, persisting carve-outs included."""
        if self._driver is not None:
            self._driver.cuCtxResetPersistingL2Cache()
        torch.sum(self._clear_buffer, dim=0, out=self._clear_result)

    def now_s(self) -> float:
        return time.monotonic()

    def overhead_us(self) -> float:
        return self._overhead_us

    @cached_property
    def _overhead_us(self) -> float:
        """From the time of one and of two empty launches: what is left at none."""
        empty = torch.empty(1, device="cuda")

        def best(launches: int) -> float:
            def call() -> None:
                for _ in range(launches):
                    empty.zero_()

            taken = sorted(self._run(call, 1, cold=False).elapsed_us for _ in range(40))
            return taken[len(taken) // 2]

        best(1)
        return max(0.0, 2 * best(1) - best(2))

    def run(self, call: Call, *, calls: int, cold: bool) -> Interval:
        try:
            return self._run(call, calls, cold=cold)
        except torch.OutOfMemoryError as error:
            torch.cuda.empty_cache()
            raise OutOfMemoryError(str(error).splitlines()[0]) from error
        except RuntimeError as error:
            if isinstance(error, GpuError):
                raise
            first = str(error).splitlines()[0]
            raise (DeviceLostError if says_lost(first) else GpuError)(first) from error

    def _run(self, call: Call, calls: int, *, cold: bool) -> Interval:
        if self._waits is not None and self._waits() is call:
            return self._queue(call, calls, cold)
        for _ in range(RETAKES):
            longest = self._hold_us >= MAX_HOLD_US
            interval = self._queue(call, calls, cold)
            if interval.held:
                return interval
            self._hold_us = min(MAX_HOLD_US, 2 * self._hold_us)
        if longest:
            self._waits, self._hold_us = weakref.ref(call), MIN_HOLD_US
        return interval

    def _queue(self, call: Call, calls: int, cold: bool) -> Interval:
        begin, end, spun = (_event() for _ in range(3))
        torch.cuda.synchronize()
        host = time.perf_counter()
        self._spin(self._hold_us)
        if cold:
            self.clear_caches()
        else:
            call()
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        cycles = self._spin(CLOCK_SPIN_US)
        spun.record()
        host_us = (time.perf_counter() - host) * 1e6
        held = not begin.query()  # type: ignore[no-untyped-call]
        clocks = self._read() if self._read is not None else None
        spun.synchronize()
        if held:
            # Follow the host: long enough to hold the next sample, and no longer than needed.
            self._hold_us = min(MAX_HOLD_US, max(MIN_HOLD_US, 1.5 * host_us))
        return Interval(
            begin.elapsed_time(end) * 1000, calls, held, self._mhz(cycles, end, spun), clocks
        )

    def _spin(self, us: float) -> int:
        """Queue a kernel of one thread that counts its SM's cycles; how many is returned."""
        cycles = int(us * self._cycles_per_us)
        torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]
        return cycles

    def _mhz(self, cycles: int, before: torch.cuda.Event, after: torch.cuda.Event) -> float | None:
        # HIP's spin counts another clock than the compute units'.
        if torch.version.hip:
            return None
        took_us = float(before.elapsed_time(after)) * 1000 - self._spin_overhead_us
        return cycles / took_us

    @cached_property
    def _spin_overhead_us(self) -> float:
        """What a spin takes beyond its cycles, from the times of a short and a long one."""

        def spun_us(us: float) -> float:
            taken: list[float] = []
            for _ in range(20):
                begin, end = _event(), _event()
                self._spin(MIN_HOLD_US)  # the events are queued before the GPU gets to them
                begin.record()
                self._spin(us)
                end.record()
                end.synchronize()
                taken.append(begin.elapsed_time(end) * 1000)
            return sorted(taken)[len(taken) // 2]

        spun_us(CLOCK_SPIN_US)
        return max(0.0, 2 * spun_us(CLOCK_SPIN_US) - spun_us(2 * CLOCK_SPIN_US))

    def peak_bytes(self, call: Call) -> int:
        """Device memory one call takes at its peak beyond what was there before it."""
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        result = call()
        torch.cuda.synchronize()
        del result
        return torch.cuda.max_memory_allocated() - before


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
