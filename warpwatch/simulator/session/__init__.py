"""Runs host code whose launches are simulated."""
