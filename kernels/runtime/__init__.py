"""What every operation needs around its kernels: checks, targets, back ends, autograd."""
