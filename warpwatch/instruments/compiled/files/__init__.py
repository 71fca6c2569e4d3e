"""Kernels in files that hold machine code, whichever compiler made it."""
