"""Triton's own launchers on a machine without a GPU, down to a driver that launches nothing."""
