"""The forward pass on Hopper GPUs."""
