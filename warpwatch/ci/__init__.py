"""Continuous integration, the trusted side: artifacts in, one verdict out; no code is run."""
