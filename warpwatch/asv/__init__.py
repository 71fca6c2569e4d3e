"""asv's environment, and suites made from workloads."""
