"""A GPU's datasheet: the units, clocks and sizes a bound or a share of peak is computed from.

Everything is counted per *SM*; on AMD read CU. A figure of the whole card is named without
``per_sm``. The tables are TOML files beside this module, one a card, and are read strictly: every
mistake of a file is reported at once.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

FOLDER = Path(__file__).parent
# What no vendor may have printed yet. Such a rate counts as endless, so that it bounds no time.
_RATES = ("fp32_fma_per_clock", "special_per_clock", "shared_bytes_per_clock")

DTYPES = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8")
# The names torch and its users write for the same formats.
_SPELLINGS = {
    "float64": "fp64",
    "float32": "fp32",
    "tfloat32": "tf32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
    "float8_e4m3fnuz": "fp8",
    "float8_e5m2fnuz": "fp8",
    "float8": "fp8",
    "fp8e4nv": "fp8",
    "fp8e5": "fp8",
    "fp8e4b8": "fp8",
    "fp8e5b16": "fp8",
}

Vendor = Literal["nvidia", "amd"]


def canonical_dtype(dtype: str) -> str:
    """``dtype`` as the datasheets spell it: ``torch.bfloat16`` and ``bfloat16`` are ``bf16``."""
    short = dtype.removeprefix("torch.")
    short = _SPELLINGS.get(short, short)
    if short not in DTYPES:
        known = " ".join(DTYPES)
        raise ValueError(f"unknown dtype {dtype!r}: expected one of {known} or torch's name of it")
    return short


@dataclass(frozen=True, kw_only=True)
class Device:
    """One card. ``clock_ghz`` is the clock of the datasheet's peaks, ``max_clock_ghz`` the highest
    the card may run at: a floor under a time must use that one.

    ``sm_count`` and ``bandwidth_gbps`` are the whole card's; a kernel sees the share of one of its
    ``dies`` (:attr:`kernel_sms`, :attr:`kernel_bandwidth_gbps`). ``cache_bytes`` is the last level
    of cache, which a cold measurement has to clear. ``registers_per_sm`` counts 32-bit registers
    (on AMD the unified file of all SIMDs); ``register_unit`` is what they are handed out in: per
    warp on NVIDIA, per lane of a wave on AMD. ``unknown`` names rates that are not public: they
    are endless here, and so bound no time.
    """

    name: str
    title: str
    vendor: Vendor
    arch: str
    aliases: tuple[str, ...]
    sm_count: int
    dies: int
    clock_ghz: float
    max_clock_ghz: float
    memory_gb: float
    power_w: float
    bandwidth_gbps: float
    l2_bytes: int
    cache_bytes: int
    fp32_fma_per_clock: float
    special_per_clock: float
    shared_bytes_per_clock: float
    warp_size: int
    simds_per_sm: int
    max_warps_per_sm: int
    max_blocks_per_sm: int
    max_threads_per_sm: int
    max_threads_per_block: int
    registers_per_sm: int
    register_unit: int
    max_registers_per_thread: int
    accumulation_registers_per_thread: int
    shared_bytes_per_sm: int
    shared_bytes_per_block: int
    shared_unit_bytes: int
    shared_reserved_bytes: int
    flop_per_clock: Mapping[str, float]
    peak_tflops: Mapping[str, float]
    unknown: tuple[str, ...] = ()

    @property
    def kernel_sms(self) -> int:
        """SMs one kernel can use: those of one die."""
        return self.sm_count // self.dies

    @property
    def kernel_bandwidth_gbps(self) -> float:
        """DRAM bandwidth one kernel can use."""
        return self.bandwidth_gbps / self.dies

    def has(self, dtype: str) -> bool:
        """Whether the tensor cores have a path for ``dtype``."""
        return canonical_dtype(dtype) in self.flop_per_clock

    def peak(self, dtype: str, *, clock_ghz: float | None = None, sms: int | None = None) -> float:
        """Dense TFLOP/s of the tensor cores in ``dtype`` at ``clock_ghz`` over ``sms`` SMs (by
        default the datasheet's clock and the SMs of one kernel). ``ValueError`` where the card has
        no such path."""
        short = canonical_dtype(dtype)
        if short not in self.flop_per_clock:
            known = " ".join(self.flop_per_clock)
            raise ValueError(f"{self.name} has no {short} path: its datasheet lists {known}")
        clock = self.clock_ghz if clock_ghz is None else clock_ghz
        units = self.kernel_sms if sms is None else sms
        return units * self.flop_per_clock[short] * clock / 1000

    def floor_us(self, flops: int, bytes_moved: int, dtype: str) -> float:
        """The roofline: no call that does this work can be faster. Uses the highest clock; data
        that fits in the last cache may come from there, so only what exceeds it counts as DRAM
        traffic."""
        compute_us = flops / (self.peak(dtype, clock_ghz=self.max_clock_ghz) * 1e6)
        dram_bytes = max(0, bytes_moved - self.cache_bytes // self.dies)
        return max(compute_us, dram_bytes / (self.kernel_bandwidth_gbps * 1e3))


_SCALARS = {
    field.name: field.type
    for field in fields(Device)
    if field.name not in {"name", "aliases", "flop_per_clock", "peak_tflops", "unknown"}
}


def names() -> tuple[str, ...]:
    """Every card there is a datasheet of."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


@cache
def load(name: str) -> Device:
    """The datasheet called ``name``; ``ValueError`` names near matches, or every mistake in it."""
    if name not in names():
        near = get_close_matches(name, names(), n=3, cutoff=0.4) or names()
        raise ValueError(f"unknown device {name!r}: did you mean {' or '.join(near)}?")
    path = FOLDER / f"{name}.toml"
    return parse(name, path.read_text(encoding="utf-8"), str(path))


def identify(reported: str) -> Device | None:
    """The datasheet of the card whose driver calls it ``reported``; ``None`` for an unknown card:
    it is timed without a floor, and its shares of peak are of ceilings that are measured on it."""
    for name in names():
        device = load(name)
        if reported in device.aliases:
            return device
    return None


def parse(name: str, text: str, where: str) -> Device:
    """A datasheet from its TOML text. One ``ValueError`` lists every mistake with its remedy."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{where}: not TOML: {error}") from None
    unknown = table.pop("unknown", [])
    mistakes = [*_wrong_unknown(unknown, table)]
    mistakes += [*_wrong_keys(table), *_wrong_scalars(table), *_wrong_tables(table)]
    if not mistakes:
        mistakes = _wrong_peaks(table)
    if mistakes:
        raise ValueError(f"{where}: " + "; ".join(mistakes))
    values: dict[str, Any] = {key: table[key] for key in _SCALARS}
    return Device(
        name=name,
        aliases=tuple(table["aliases"]),
        flop_per_clock=MappingProxyType(dict(table["flop_per_clock"])),
        peak_tflops=MappingProxyType({k: float(v) for k, v in table["peak_tflops"].items()}),
        unknown=tuple(unknown),
        **values,
    )


def _wrong_unknown(unknown: Any, table: dict[str, Any]) -> list[str]:
    """Mistakes in the list of rates that are not public; those without one get an endless rate."""
    tables = table.get("flop_per_clock")
    known = (*_RATES, *(f"flop_per_clock.{dtype}" for dtype in DTYPES))
    mistakes = []
    for key in unknown if isinstance(unknown, list) else [unknown]:
        place = tables if str(key).startswith("flop_per_clock.") else table
        name = str(key).removeprefix("flop_per_clock.")
        if key not in known:
            mistakes.append(f"unknown: {key!r}, expected some of {' '.join(known)}")
        elif isinstance(place, dict) and name in place:
            mistakes.append(f"unknown: {key} has a value, expected one of the two")
        elif isinstance(place, dict):
            place[name] = math.inf
    return mistakes


def _wrong_keys(table: Mapping[str, Any]) -> list[str]:
    known = {*_SCALARS, "aliases", "flop_per_clock", "peak_tflops"}
    missing = [f"{key} is missing" for key in sorted(known - set(table))]
    unknown = []
    for key in sorted(set(table) - known):
        near = get_close_matches(key, known, n=1)
        unknown.append(f"{key} is not known" + (f", did you mean {near[0]}?" if near else ""))
    return missing + unknown


def _wrong_scalars(table: Mapping[str, Any]) -> list[str]:
    mistakes = []
    zero_is_right = {"accumulation_registers_per_thread", "shared_reserved_bytes"}
    for key, kind in _SCALARS.items():
        if key not in table:
            continue
        value = table[key]
        if kind == "Vendor":
            if value not in get_args(Vendor):
                mistakes.append(f"{key} = {value!r}, expected one of {get_args(Vendor)}")
        elif kind == "str":
            if not isinstance(value, str) or not value:
                mistakes.append(f"{key} = {value!r}, expected a text")
        elif isinstance(value, bool) or not isinstance(
            value, int if kind == "int" else (int, float)
        ):
            mistakes.append(f"{key} = {value!r}, expected a number ({kind})")
        elif value < 0 or (value == 0 and key not in zero_is_right):
            mistakes.append(f"{key} = {value}, expected a positive number")
    aliases = table.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        mistakes.append(f"aliases = {aliases!r}, expected a list of names as drivers report them")
    return mistakes


def _wrong_tables(table: Mapping[str, Any]) -> list[str]:
    mistakes = []
    for key in ("flop_per_clock", "peak_tflops"):
        rows = table.get(key, {})
        if not isinstance(rows, dict):
            mistakes.append(f"{key} = {rows!r}, expected a table [{key}]")
            continue
        for dtype, value in rows.items():
            if dtype not in DTYPES:
                mistakes.append(f"{key}.{dtype} is not known, expected one of {' '.join(DTYPES)}")
            if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
                mistakes.append(f"{key}.{dtype} = {value!r}, expected a positive number")
    return mistakes


def _wrong_peaks(table: Mapping[str, Any]) -> list[str]:
    """Published peaks are often of sparse matrices or copied from another row: each has to be
    the product of units, rate and clock, to the last digit it is printed with."""
    mistakes = []
    for dtype, printed in table["peak_tflops"].items():
        if dtype not in table["flop_per_clock"]:
            mistakes.append(f"peak_tflops.{dtype} has no row in flop_per_clock")
            continue
        rate = table["flop_per_clock"][dtype]
        product = table["sm_count"] * rate * table["clock_ghz"] / 1000
        half_a_digit = 0.5 if isinstance(printed, int) else 0.05
        if abs(printed - product) > half_a_digit + 1e-6:
            mistakes.append(
                f"peak_tflops.{dtype} = {printed}, but {table['sm_count']} x {rate} x "
                f"{table['clock_ghz']} GHz = {product:.1f}"
            )
    return mistakes
