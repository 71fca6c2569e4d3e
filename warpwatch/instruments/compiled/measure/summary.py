"""The metrics of one call, of all its launches and of torch's own operations."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from warpwatch import devices
from warpwatch.instruments.compiled.formats.recording import Recording, TorchOp, Tuned

if TYPE_CHECKING:
    from .reading import Reading


def summarize(recording: Recording, readings: tuple[Reading, ...]) -> dict[str, float]:
    """The metrics of one call. Where a call launches several kernels: sums of what adds up; the
    worst level of those that multiply matrices; what belongs to one kernel (registers, blocks)
    from the launch whose bound is longest. A call with failures has only its failures: the rest
    would look better for what is missing."""
    if recording.failures:
        return {"compile_failures": len(recording.failures)}
    device = devices.load(recording.target.device)
    moved_us = torch_us(recording.torch_ops, device)
    values: dict[str, float] = {
        "compile_failures": 0,
        "launches": len(recording.launches) + sum(op.launches for op in recording.torch_ops),
        "copied_bytes": sum(op.copied_bytes for op in recording.torch_ops),
        "bound_us": sum(one.bound.us for one in readings) + moved_us,
        "bound_added_us": _added_us(recording.torch_ops, readings, device),
        "atomics": sum(round(one.bound.atomics) for one in readings),
        "configurations": sum(len(one.configurations) for one in spaces_of(recording)),
        "search_space": _stands_for((one.kernel, *one.configurations) for one in recording.tuned),
        "recorded_configuration": _stands_for(
            (one.kernel, one.recorded) for one in recording.tuned
        ),
    }
    if not readings:
        return values
    longest = max(readings, key=lambda one: one.bound.us)
    kernels = {one.code.hash: one for one in readings}.values()
    multiplying = [one.code for one in readings if one.multiplies]
    values |= {
        "spilled_bytes": sum(one.code.spilled_bytes for one in kernels),
        "advisories": sum(len(one.advisories) for one in kernels),
        "tensor_core_level": min((code.tensor_level for code in multiplying), default=0),
        "blocks_in_flight": longest.occupancy.blocks,
        "registers": longest.code.registers,
        "shared_bytes": longest.launch.kernel.shared_bytes,
        "code_bytes": sum(one.code.code_bytes for one in kernels),
        "compile_seconds": sum(one.launch.kernel.compile_seconds for one in kernels),
    }
    if multiplying:
        values["async_copy_level"] = min(code.async_copy_level for code in multiplying)
        tensor_us = sum(one.bound.tensor_us for one in readings)
        active_us = sum(one.bound.active_us for one in readings) + moved_us
        values["bound_utilization"] = 100 * tensor_us / active_us
    return values


def of_torch(recording: Recording) -> dict[str, object]:
    """What torch's own operations of one call do, and the time that they take at least, as JSON."""
    names = ("name", "launches", "bytes_moved", "copied_bytes", "flops")
    return {
        "torch_ops": [{key: getattr(op, key) for key in names} for op in recording.torch_ops],
        "torch_us": torch_us(recording.torch_ops, devices.load(recording.target.device)),
    }


def torch_us(operations: Sequence[TorchOp], device: devices.Device) -> float:
    """How long torch's own operations take at least: for their traffic, or for their products."""
    per_us = device.kernel_bandwidth_gbps * 1e3
    moved = sum(one.bytes_moved for one in operations if not one.flops) / per_us
    for one in operations:
        if one.flops:
            rate = device.flop_per_clock.get(one.dtype) or 2 * device.fp32_fma_per_clock
            busy = one.flops / (rate * device.kernel_sms * device.clock_ghz * 1e3)
            moved += max(one.bytes_moved / per_us, busy)
    return moved


def _added_us(
    operations: Sequence[TorchOp], readings: Sequence[Reading], device: devices.Device
) -> float:
    """What of the bound values lack that were read before spills and torch's products took time."""
    plain = [replace(one, flops=0) for one in operations]
    units = [one.bound.units_us for one in readings]
    others = [max(us for unit, us in one.items() if unit != "spills") for one in units]
    spilled = sum(max(one.values()) - other for one, other in zip(units, others, strict=True))
    return spilled + torch_us(operations, device) - torch_us(plain, device)


def _stands_for(texts: Iterable[tuple[str, ...]]) -> int:
    """A number that is another one where a text is another: a series holds numbers only."""
    found = sorted(set(texts))
    if not found:
        return 0
    return int.from_bytes(hashlib.sha256(repr(found).encode()).digest()[:4], "big") or 1


def spaces_of(recording: Recording) -> list[Tuned]:
    """The search spaces of the call, each once however often its kernel is launched."""
    return list({(one.kernel, one.configurations): one for one in recording.tuned}.values())
