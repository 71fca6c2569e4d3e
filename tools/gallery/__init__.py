"""A gallery: histories of public Triton libraries, measured by Warpwatch and checked by hand."""
