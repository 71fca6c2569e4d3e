"""Judges results: series, steps, findings, pairs. Reads files only, and trusts none."""
