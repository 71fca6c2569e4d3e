"""Runs public Gluon kernels in the simulator, unmodified and with faults planted in them."""
