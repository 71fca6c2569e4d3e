"""Matrix multiplication with fused epilogues."""

from kernels.matmul.api.dense import matmul
from kernels.matmul.api.grouped import grouped_matmul

__all__ = ["grouped_matmul", "matmul"]
