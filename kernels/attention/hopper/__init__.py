"""Attention for Hopper GPUs, written in Gluon."""
