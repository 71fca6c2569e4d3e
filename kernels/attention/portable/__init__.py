"""Attention for every target, in plain Triton."""
