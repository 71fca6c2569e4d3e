"""Catches performance regressions of GPU kernels, commit by commit, with or without a GPU."""

__version__ = "0.2.0"
