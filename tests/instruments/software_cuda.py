"""What the GPU that is reached through torch asks of torch and the driver, made of software.

A host and a device with a clock each: a launch costs the host time and is queued, the device works
through its queue, and an event is passed when the device gets to it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any


class Event:
    """Where in the queue it was recorded."""

    def __init__(self, device: Device, enable_timing: bool) -> None:
        assert enable_timing
        self.device, self.at_us = device, 0.0

    def record(self) -> None:
        self.at_us = self.device.queue(self.device.event_us)

    def query(self) -> bool:
        return self.at_us <= self.device.host_us

    def synchronize(self) -> None:
        self.device.host_us = max(self.device.host_us, self.at_us)

    def elapsed_time(self, end: Event) -> float:
        return (end.at_us - self.at_us) / 1000  # ms


class Device:
    """``launch_us`` is what a launch costs the host; an event takes ``event_us`` on the device, a
    spin ``spin_us`` beyond its cycles at ``mhz``."""

    def __init__(self, *, hip: bool = False) -> None:
        self.host_us = self.busy_until_us = 0.0
        self.launch_us, self.event_us, self.spin_us, self.mhz = 5.0, 1.0, 0.5, 1500.0
        self.l2_bytes = 4 << 20
        self.did: list[str] = []
        self.held_for_us: list[float] = []
        self.cleared_bytes = 0
        self.usable = True
        self.allocated = self.most_allocated = 0
        self.driver = SimpleNamespace(cuCtxResetPersistingL2Cache=lambda: self.does("reset"))
        self.torch = SimpleNamespace(
            __version__="2.0",
            OutOfMemoryError=type("OutOfMemoryError", (RuntimeError,), {}),
            version=SimpleNamespace(hip="6.0" if hip else None, cuda=None if hip else "12.0"),
            ones=self.ones,
            empty=lambda *shape, device: SimpleNamespace(zero_=lambda: self.launch(2.0)),
            sum=self.sum,
            cuda=SimpleNamespace(
                is_available=lambda: self.usable,
                set_device=lambda index: None,
                get_device_properties=lambda index: SimpleNamespace(
                    L2_cache_size=self.l2_bytes, uuid="1", clock_rate=2_000_000
                ),
                synchronize=self.synchronize,
                Event=lambda enable_timing: Event(self, enable_timing),
                _sleep=self.spin,
                empty_cache=lambda: self.does("empty cache"),
                memory_allocated=lambda: self.allocated,
                max_memory_allocated=lambda: self.most_allocated,
                reset_peak_memory_stats=lambda: self.does("reset peak"),
            ),
        )
        self.ctypes = SimpleNamespace(CDLL=lambda name: self.driver)
        self.time = SimpleNamespace(
            perf_counter=lambda: self.host_us / 1e6, monotonic=lambda: self.host_us / 1e6
        )

    def does(self, what: str) -> int:
        self.did.append(what)
        return 0

    def queue(self, us: float) -> float:
        """When the device is done with what is queued now."""
        self.busy_until_us = max(self.busy_until_us, self.host_us) + us
        return self.busy_until_us

    def launch(self, us: float) -> None:
        self.host_us += self.launch_us
        self.queue(us)

    def call(self, us: float, *, host_us: float = 0.0, waits: bool = False) -> Callable[[], None]:
        """A kernel of ``us`` whose launch takes the host so much longer, or that is waited for."""

        def launched() -> None:
            self.did.append("call")
            self.host_us += host_us
            self.launch(us)
            if waits:
                self.synchronize()

        return launched

    def synchronize(self) -> None:
        self.host_us = max(self.host_us, self.busy_until_us)

    def spin(self, cycles: int) -> None:
        self.did.append("spin")
        self.launch(cycles / self.mhz + self.spin_us)
        self.held_for_us.append(cycles / 2000)  # as the one who asks reckons before it knows better

    def ones(self, count: int, device: str) -> Any:
        self.cleared_bytes = 4 * count
        return SimpleNamespace(bytes=4 * count)

    def sum(self, source: Any, dim: int, out: Any) -> None:
        self.did.append(f"read {source.bytes}")
        self.launch(source.bytes / 4e6)
