"""Matrix multiplication with fused epilogues."""

from .interface import matmul

__all__ = ["matmul"]
