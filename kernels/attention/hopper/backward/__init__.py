"""The backward pass on Hopper GPUs."""
