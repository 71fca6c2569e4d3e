"""Words of Blackwell: tensor memory and the products that it takes."""

from __future__ import annotations

from typing import Any

from warpwatch.simulator.machine import tensor_memory
from warpwatch.simulator.machine.tensor_memory import TensorMemory
from warpwatch.simulator.values.layouts import Layout


class _Made(type):
    """Layouts that host code made are of the same class."""

    def __instancecheck__(cls, one: Any) -> bool:
        return type.__instancecheck__(cls, one) or type(one).__name__ == cls.__name__


class TensorMemoryLayout(Layout, metaclass=_Made):
    """A layout of tensor memory."""


class TensorMemoryScalesLayout(Layout, metaclass=_Made):
    """A layout of scales in tensor memory."""


BLACKWELL: dict[str, Any] = {
    "TensorMemoryLayout": TensorMemoryLayout,
    "TensorMemoryScalesLayout": TensorMemoryScalesLayout,
    "get_tmem_reg_layout": Layout,
    "tensor_memory_descriptor": TensorMemory,
    "allocate_tensor_memory": tensor_memory.allocate,
    "tcgen05_copy": tensor_memory.copy,
    "tcgen05_mma": tensor_memory.multiply,
    "tcgen05_mma_scaled": tensor_memory.multiply_scaled,
    "tcgen05_commit": tensor_memory.commit,
    "tcgen05_mma_barrier_count": tensor_memory.barrier_count,
}
