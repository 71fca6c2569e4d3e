"""Products in fp8 on Hopper GPUs."""
