"""Runs host code for a GPU that is not there, and records its launches."""
