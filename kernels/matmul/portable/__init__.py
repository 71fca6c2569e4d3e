"""Matmul for every target, in plain Triton."""
