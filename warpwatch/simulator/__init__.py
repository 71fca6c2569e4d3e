"""Runs Gluon and Triton kernels on a CPU, and finds what is wrong with their synchronisation."""
