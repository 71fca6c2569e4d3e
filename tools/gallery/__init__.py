"""A gallery: histories of public Triton libraries, and findings checked against their diffs."""
