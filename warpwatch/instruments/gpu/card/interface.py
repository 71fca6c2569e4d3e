"""What a measurement asks of a GPU; the real one and the one made of software both answer it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

Call = Callable[[], object]

# What CUDA, HIP, torch and the drivers' libraries say of a device or a context that is of no use
# any more, in lower case.
LOST = (
    "context is destroyed",
    "device lost",
    "device-side assert",
    "fallen off the bus",
    "gpu is lost",
    "gpu hang",
    "hardware exception",
    "hardware stack error",
    "illegal instruction",
    "illegal memory access",
    "invalid program counter",
    "launch timed out",
    "memory access fault",
    "misaligned address",
    "operation not supported on global/shared address space",
    "uncorrectable ecc",
    "uncorrectable nvlink",
    "unspecified launch failure",
)


class GpuError(RuntimeError):
    """A launch or a measurement failed; the next workload can still be measured."""


class OutOfMemoryError(GpuError):
    """The workload does not fit into the memory that is free."""


class DeviceLostError(GpuError):
    """The GPU answers no more: nothing can be measured in this process."""


def says_lost(text: str) -> bool:
    """Whether an error's text says that nothing more can be measured in this process."""
    return any(words in text.lower() for words in LOST)


@dataclass(frozen=True)
class Clocks:
    """The card's state as its driver tells it. ``throttled`` names why clocks were lowered."""

    sm_mhz: float | None
    memory_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttled: tuple[str, ...] = ()


@dataclass(frozen=True)
class Interval:
    """``calls`` back-to-back calls between two device events, ``elapsed_us`` in all.

    ``held`` says that the GPU had not begun before the host had queued everything, so that no
    launch gap is in the time. ``spin_mhz`` is the SM clock, counted on the SM right after.
    """

    elapsed_us: float
    calls: int
    held: bool
    spin_mhz: float | None = None
    clocks: Clocks | None = None


@dataclass(frozen=True)
class Card:
    """Which GPU this is. ``name`` is what its driver reports."""

    name: str
    sm_count: int
    cache_bytes: int
    memory_bytes: int
    driver: str
    software: dict[str, str] = field(default_factory=dict)


class Gpu(Protocol):
    """The measuring side of one GPU."""

    @property
    def card(self) -> Card: ...

    def run(self, call: Call, *, calls: int, cold: bool) -> Interval:
        """Time ``calls`` calls, on a cleared cache if ``cold``. Raises ``GpuError``."""

    def overhead_us(self) -> float:
        """What two events and the first launch between them add to an interval."""

    def now_s(self) -> float:
        """The clock that time limits are counted on."""
