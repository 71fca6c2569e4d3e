"""Times of calls that take turns on one GPU: ``python -m tools.kernels.speed.NAME --help``."""
