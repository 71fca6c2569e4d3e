"""What the kernels of every back end share: masks, scores, options, addresses."""
