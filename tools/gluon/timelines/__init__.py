"""Timelines of Hopper's kernels for the documents, drawn from the kernels that run."""
