"""Reads result files of unknown origin: strict schema, size limits, nothing executed."""
