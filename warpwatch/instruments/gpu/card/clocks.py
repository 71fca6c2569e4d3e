"""What the card says of itself while it works: clocks, power, temperature, why it throttles.

Read through NVML (``nvidia-ml-py``) or AMD's ``amdsmi``, both optional: without them a measurement
still runs and its samples carry no clocks. The AMD reader has not been run on a card yet.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from .interface import Clocks

SHARED = "on this GPU: times are not its own, end it or wait"

Reader = Callable[[], Clocks]
Computing = Mapping[str, frozenset[int]]  # processes by the card's UUID

# NVML's clock event reasons that lower the clock of a card that has work to do. Idle (1), an
# application's own setting (2) and sync boost (16) are not throttling.
NVML_REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "temperature",
    0x40: "hardware temperature",
    0x80: "power brake",
}


def reasons(bits: int) -> tuple[str, ...]:
    """The names of NVML's throttling bits; others are left out."""
    return tuple(name for bit, name in NVML_REASONS.items() if bits & bit)


def _module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def nvml_reader(uuid: str) -> Reader | None:
    """Reads the card called ``uuid`` through NVML, or ``None`` where NVML is not to be had."""
    nvml = _module("pynvml")
    if nvml is None:
        return None
    try:
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
    except nvml.NVMLError:
        return None

    def read() -> Clocks:
        return Clocks(
            sm_mhz=float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            memory_mhz=float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
            power_w=nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            temperature_c=float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            throttled=reasons(int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))),
        )

    return _readable(read, nvml.NVMLError)


def amdsmi_reader(index: int) -> Reader | None:
    """Reads the card that HIP calls ``index``; ``None`` where ``amdsmi`` is not to be had or it
    cannot be told which of the machine's cards that is."""
    smi = _module("amdsmi")
    physical = amd_index(index, os.environ)
    if smi is None or physical is None:
        return None
    try:
        smi.amdsmi_init()
        handle = smi.amdsmi_get_processor_handles()[physical]
    except (smi.AmdSmiException, IndexError):
        return None
    return _readable(
        lambda: amd_clocks(
            smi.amdsmi_get_clock_info(handle, smi.AmdSmiClkType.GFX),
            smi.amdsmi_get_power_info(handle),
            smi.amdsmi_get_gpu_metrics_info(handle),
        ),
        smi.AmdSmiException,
    )


def amd_index(index: int, environment: Mapping[str, str]) -> int | None:
    """Which of the machine's cards HIP calls ``index``: amdsmi lists all, HIP those it is shown.
    ``None`` if the list has no such place or names cards by something else than numbers."""
    hip = environment.get("HIP_VISIBLE_DEVICES") or environment.get("CUDA_VISIBLE_DEVICES")
    # The runtime below HIP hides cards first: HIP's numbers count what is left.
    for shown in (hip, environment.get("ROCR_VISIBLE_DEVICES")):
        if shown:
            places = [place.strip() for place in shown.split(",")]
            if index >= len(places) or not places[index].isdecimal():
                return None
            index = int(places[index])
    return index


def amd_clocks(clock: dict[str, Any], power: dict[str, Any], metrics: dict[str, Any]) -> Clocks:
    """From amdsmi's answers; a value the card does not offer is the text ``N/A``."""

    def number(value: Any) -> float | None:
        return float(value) if isinstance(value, int | float) else None

    status = metrics.get("throttle_status")
    return Clocks(
        sm_mhz=number(clock.get("clk")) or None,
        power_w=number(power.get("current_socket_power"))
        or number(power.get("average_socket_power")),
        temperature_c=number(metrics.get("temperature_hotspot")),
        throttled=("throttle status",) if number(status) else (),
    )


def _readable(read: Reader, failure: type[Exception]) -> Reader | None:
    """``read``, if one reading succeeds: some virtual machines allow none."""
    try:
        read()
    except failure:
        return None
    return read


def computing() -> dict[str, frozenset[int]]:
    """By the UUID of each card, the processes that compute on it, as far as NVML tells. In a
    container they have the numbers of the host: none of them can be told from one's own."""
    nvml = _module("pynvml")
    if nvml is None:
        return {}
    found = {}
    try:
        nvml.nvmlInit()
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            processes = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
            found[nvml.nvmlDeviceGetUUID(handle)] = frozenset(one.pid for one in processes)
    except nvml.NVMLError:
        pass  # what was not told is not known
    return found


class Listed(NamedTuple):
    """A card as the driver lists it; ``memory`` in bytes."""

    name: str
    memory: int
    uuid: str


def cards() -> list[Listed]:
    """Each card of this machine, as far as NVML lists it."""
    nvml = _module("pynvml")
    if nvml is None:
        return []
    try:
        nvml.nvmlInit()
        handles = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
        return [
            Listed(
                str(nvml.nvmlDeviceGetName(one)),
                int(nvml.nvmlDeviceGetMemoryInfo(one).total),
                str(nvml.nvmlDeviceGetUUID(one)),
            )
            for one in handles
        ]
    except nvml.NVMLError:
        return []


def alike() -> list[str]:
    """The cards that one comparison may be spread over: all of the first one's kind.

    Returns:
        Values of ``CUDA_VISIBLE_DEVICES``, one a card: those that it names, else what NVML lists.
        Nothing where NVML lists none, as on AMD: then a process takes the card that it finds.

    Example:
        >>> alike()  # on a host with two H200
        ['GPU-6c3f4a7e-...', 'GPU-0b1d52c9-...']
    """
    listed = cards()
    asked = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    named = [one.strip() for one in asked if one.strip()]
    if not listed or not named:
        return [one.uuid for one in listed if one.name == listed[0].name]
    # Numbers count as CUDA does, which is NVML's order only where all cards are alike.
    return named if len({one.name for one in listed}) == 1 else named[:1]


def shared(
    uuid: str, before: Computing, after: Computing, ours: frozenset[int] = frozenset()
) -> str:
    """What to say of others on card ``uuid``, nothing where there are none: those of ``before``
    this process came to it that are still there ``after``, so neither oneself nor who just left.
    ``ours`` wait for their turn and compute nothing."""
    none: frozenset[int] = frozenset()
    count = len((before.get(uuid, none) & after.get(uuid, none)) - ours)
    if not count:
        return ""
    who = "another process computes" if count == 1 else f"{count} other processes compute"
    return f"{who} {SHARED}"


def driver_version() -> str:
    """The version of the kernel's GPU driver, or ``unknown``."""
    for file in (Path("/sys/module/nvidia/version"), Path("/sys/module/amdgpu/version")):
        if file.is_file():
            return file.read_text(encoding="utf-8").strip()
    nvml = _module("pynvml")
    if nvml is None:
        return "unknown"
    try:
        nvml.nvmlInit()
        return str(nvml.nvmlSystemGetDriverVersion())
    except nvml.NVMLError:
        return "unknown"
