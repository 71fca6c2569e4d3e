"""Matrix multiplication with fused epilogues."""

from kernels.matmul.api.dense import matmul
from kernels.matmul.api.grouped import grouped_matmul
from kernels.runtime import targets

targets.mend_interpreter()

__all__ = ["grouped_matmul", "matmul"]
