"""All three gradients in one kernel, up to head dim 128."""
