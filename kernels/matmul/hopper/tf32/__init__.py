"""Products of fp32 operands in tf32 on Hopper GPUs."""
