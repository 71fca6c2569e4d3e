"""Words of Blackwell: tensor memory and the products that it takes."""

from __future__ import annotations

from typing import Any

from warpwatch.simulator.machine import tensor_memory
from warpwatch.simulator.machine.tensor_memory import TensorMemory
from warpwatch.simulator.values.blocks import Layout

BLACKWELL: dict[str, Any] = {
    "TensorMemoryLayout": Layout,
    "TensorMemoryScalesLayout": Layout,
    "get_tmem_reg_layout": Layout,
    "tensor_memory_descriptor": TensorMemory,
    "allocate_tensor_memory": tensor_memory.allocate,
    "tcgen05_copy": tensor_memory.copy,
    "tcgen05_mma": tensor_memory.multiply,
    "tcgen05_commit": tensor_memory.commit,
    "tcgen05_mma_barrier_count": lambda smems, multicast: 1,
}
