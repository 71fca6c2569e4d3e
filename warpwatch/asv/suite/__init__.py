"""asv's benchmarks, made from the workloads of a project."""
