"""The forward pass in fp8 on Hopper GPUs."""
