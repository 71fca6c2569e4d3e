"""Matrix multiplication with fused epilogues."""

from .grouped_interface import grouped_matmul
from .interface import matmul

__all__ = ["grouped_matmul", "matmul"]
