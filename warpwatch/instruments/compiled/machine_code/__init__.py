"""Reads the machine code of NVIDIA and AMD kernels."""
