"""A museum of regressions: small kernels that re-create what others reported in public."""
