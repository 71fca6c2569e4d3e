"""Datasheets of GPUs, one TOML a card."""

from benchmarks.devices.datasheet import (
    DTYPES,
    Device,
    canonical_dtype,
    identify,
    load,
    names,
    parse,
)

__all__ = ["DTYPES", "Device", "canonical_dtype", "identify", "load", "names", "parse"]
