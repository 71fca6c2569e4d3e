"""Two versions of compiled kernels, compared."""
