"""Attention in fp8 as operators of torch."""
