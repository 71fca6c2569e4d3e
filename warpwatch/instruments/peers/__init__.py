"""Other implementations of a workload, measured interleaved with ours."""
