"""Runs an existing script for a GPU that is not there, and writes its calls down as workloads."""
