"""Two kernels for head dims above 128: one for queries, one for keys and values."""
