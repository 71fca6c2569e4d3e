"""Defects planted in our kernels, which the gate must find: ``python -m tools.planted.on_gpu``."""
