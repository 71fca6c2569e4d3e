"""asv's view of the benchmarks, and nothing else: asv imports every module below this folder."""
