"""Packed sequences on Hopper GPUs: their tiles and their workspace."""
