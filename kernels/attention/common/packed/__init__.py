"""Sequences of different lengths in one tensor, without padding."""
