"""The roofs over a workload: what the report needs to draw a roofline and a share of peak."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from warpwatch import devices
from warpwatch.workload.base import Workload

from .measuring import dtype_of


def roofs(sheets: Mapping[str, devices.Device], found: Sequence[Workload]) -> dict[str, Any]:
    """Attributes of a benchmark over ``found``, by device or by target: TFLOP/s a workload (none
    where the card has no such path), GB/s of one kernel, and the card's full name. ``dtypes`` are
    the workloads', for a card that none of these is."""
    return {
        "dtypes": [devices.canonical_dtype(dtype_of(workload)) for workload in found],
        "peaks": {name: _peaks(device, found) for name, device in sheets.items()},
        "bandwidths": {name: device.kernel_bandwidth_gbps for name, device in sheets.items()},
        "devices": {name: device.title for name, device in sheets.items()},
    }


def _peaks(device: devices.Device, found: Sequence[Workload]) -> list[float | None]:
    kinds = [devices.canonical_dtype(dtype_of(workload)) for workload in found]
    rates = [device.flop_per_clock.get(kind, math.inf) for kind in kinds]
    return [
        round(device.peak(kind), 1) if math.isfinite(rate) else None
        for kind, rate in zip(kinds, rates, strict=True)
    ]
