"""What Triton asks of the C half of a driver, answered from the target's datasheet."""

from __future__ import annotations

from typing import Any

from warpwatch import devices
from warpwatch.config.targets import Target
from warpwatch.instruments.compiled.formats import elf

from .torch import cuda as torch_cuda


class Utilities:
    """What Triton asks of the C half of a driver."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._device = devices.load(target.device)

    def get_device_properties(self, device: int) -> dict[str, Any]:
        sheet = self._device
        return {
            "max_shared_mem": sheet.shared_bytes_per_block,
            "max_num_regs": sheet.registers_per_sm,
            "multiprocessor_count": sheet.kernel_sms,
            "warpSize": sheet.warp_size,
            "sm_clock_rate": int(sheet.max_clock_ghz * 1e6),
            "arch": str(self._target.arch),
            "cooperativeLaunch": 1,
        }

    def load_binary(
        self, name: str, binary: bytes, shared: int, device: int
    ) -> tuple[object, object, int, int, int]:
        """Handles that mean nothing, and what a loaded kernel is known by."""
        registers = elf.read(binary).registers or 0
        return object(), object(), registers, 0, self._device.max_threads_per_block

    def unload_module(self, module: object) -> None: ...

    def set_printf_fifo_size(self, size: int) -> None: ...

    def cuOccupancyMaxActiveClusters(self, *_: Any) -> int:  # noqa: N802  (Triton's name)
        raise torch_cuda.NotAnsweredError("cluster occupancy is not answered without a GPU")
