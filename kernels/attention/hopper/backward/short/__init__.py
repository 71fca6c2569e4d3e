"""Two kernels for short sequences: one for queries, one for keys and values."""
