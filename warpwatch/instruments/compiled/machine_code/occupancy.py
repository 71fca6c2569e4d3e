"""How many blocks one SM or CU holds at once, what limits them, and how full the last wave is."""

from __future__ import annotations

from dataclasses import dataclass

from warpwatch.devices import Device
from warpwatch.instruments.compiled.formats.recording import Launch


@dataclass(frozen=True)
class Occupancy:
    """``limited_by`` names what runs out first: ``registers``, ``shared memory``, ``warps`` or
    ``blocks``. ``waves`` is how often the device fills; ``last_wave_fill`` the share of the last
    wave that has work."""

    blocks: int
    limited_by: str
    limits: dict[str, int]
    waves: float
    last_wave_fill: float


def occupancy(launch: Launch, device: Device, registers: int) -> Occupancy:
    """Blocks in flight by the datasheet's limits. ``registers`` are a thread's (on AMD vector and
    accumulation registers together)."""
    kernel = launch.kernel
    blocks, by, limits = blocks_in_flight(device, kernel.num_warps, registers, kernel.shared_bytes)
    slots = max(1, blocks) * device.kernel_sms
    waves = launch.programs * kernel.num_ctas / slots
    rest = (launch.programs * kernel.num_ctas) % slots
    return Occupancy(blocks, by, limits, waves, rest / slots if rest else 1.0)


def blocks_in_flight(
    device: Device, warps: int, registers: int, shared: int
) -> tuple[int, str, dict[str, int]]:
    """How many blocks of ``warps`` with ``shared`` bytes each an SM or CU holds, what limits them,
    and how many each limit would let in."""
    if shared or device.shared_reserved_bytes:
        unit = device.shared_unit_bytes
        shared = -(-(shared + device.shared_reserved_bytes) // unit) * unit
    limits = {
        "warps": min(
            device.max_warps_per_sm // warps,
            device.max_threads_per_sm // (warps * device.warp_size),
        ),
        "blocks": device.max_blocks_per_sm,
        "registers": _by_registers(device, registers, warps),
    }
    if shared:
        limits["shared memory"] = device.shared_bytes_per_sm // shared
    blocks = min(limits.values())
    return blocks, next(name for name, limit in limits.items() if limit == blocks), limits


def _by_registers(device: Device, registers: int, warps: int) -> int:
    """Each SIMD has its own register file, and a block's warps are dealt to the SIMDs in turn."""
    if not registers:
        return device.max_blocks_per_sm
    simd_file = device.registers_per_sm // device.simds_per_sm
    if device.vendor == "nvidia":
        unit = device.register_unit  # a warp's allocation is rounded up to this
        warp = -(-registers * device.warp_size // unit) * unit
    else:
        unit = device.register_unit  # a lane's allocation is
        warp = -(-registers // unit) * unit * device.warp_size
    warps_per_simd = simd_file // warp
    return warps_per_simd * device.simds_per_sm // warps
