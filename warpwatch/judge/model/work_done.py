"""What one call of a workload has to do, and under which roofs: from a benchmark's attributes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .benchmark import Benchmark, unquoted


@dataclass(frozen=True)
class Work:
    """Operations and bytes of one call; roofs by device (or target) where the workload has one.
    ``formula_bytes`` are what the formula written out holds at once, at least, where it is told."""

    flops: float
    bytes_moved: float
    peaks_tflops: Mapping[str, float]
    bandwidths_gbps: Mapping[str, float]
    titles: Mapping[str, str]
    dtype: str = ""  # whose peak counts, as the instruments name it
    formula_bytes: float | None = None

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.flops / self.bytes_moved


def works_of(benchmark: Benchmark) -> dict[str, Work]:
    """By workload; empty where the benchmark does not say, or says it wrongly."""
    own = benchmark.attributes
    flops, moved = own.get("flops"), own.get("bytes_moved")
    peaks, bandwidths, devices = own.get("peaks"), own.get("bandwidths"), own.get("devices")
    if not isinstance(flops, list) or not isinstance(moved, list) or not benchmark.params:
        return {}
    if not isinstance(peaks, dict) or not isinstance(bandwidths, dict):
        return {}
    names = devices if isinstance(devices, dict) else {}
    dtypes = own.get("dtypes")
    found = {}
    for index, workload in enumerate(benchmark.params[0]):
        operations, size = _at(flops, index), _at(moved, index)
        if operations is None or size is None:
            continue
        roofs = {device: _at(values, index) for device, values in peaks.items()}
        found[unquoted(workload)] = Work(
            operations,
            size,
            {device: peak for device, peak in roofs.items() if peak is not None},
            {d: float(b) for d, b in bandwidths.items() if _is_amount(b)},
            {d: t for d, t in names.items() if isinstance(t, str) and len(t) < 200},
            _dtype(dtypes, index),
            _at(own.get("formula_bytes"), index),
        )
    return found


def _dtype(values: Any, index: int) -> str:
    if not isinstance(values, list) or index >= len(values):
        return ""
    return values[index] if isinstance(values[index], str) and len(values[index]) < 20 else ""


def _at(values: Any, index: int) -> float | None:
    if not isinstance(values, list) or index >= len(values) or not _is_amount(values[index]):
        return None
    return float(values[index])


def _is_amount(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 < value < 1e30 and math.isfinite(value)
