"""Tile sizes by target, head dim and options."""
