"""Numeric formats and rules that the kernels of every back end share."""
