"""Measures many workloads in worker processes."""
