"""Torch's part of a recording: its device, its operations, their memory traffic."""
