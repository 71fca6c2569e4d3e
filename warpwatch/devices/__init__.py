"""Datasheets of GPUs, one TOML a card; what is measured on a card takes the place of one."""

from .ceilings import Ceiling, Ceilings, Roof
from .datasheet import DTYPES, Device, canonical_dtype, identify, load, names, parse

__all__ = [
    "DTYPES",
    "Ceiling",
    "Ceilings",
    "Device",
    "Roof",
    "canonical_dtype",
    "identify",
    "load",
    "names",
    "parse",
]
