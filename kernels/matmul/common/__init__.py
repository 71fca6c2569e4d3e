"""What the matmul kernels of every back end share."""
