"""The commands that measure: one workload, or a history."""
