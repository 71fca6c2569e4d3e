"""The commands that need a GPU."""
