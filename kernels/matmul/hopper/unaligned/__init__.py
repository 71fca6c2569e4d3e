"""Products whose rows begin at any address, on Hopper GPUs."""
