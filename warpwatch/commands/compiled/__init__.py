"""The commands that need no GPU: what compilers make of a kernel."""
