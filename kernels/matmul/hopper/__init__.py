"""Matmul for Hopper GPUs, written in Gluon."""
