"""Device functions that attention and matmul share."""
