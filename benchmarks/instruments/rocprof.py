"""Hardware counters of AMD cards through rocprofv3. **Not yet run on a card of ours.**

Written against the tool's documented ``counter_collection.csv``. Utilization is MfmaUtil: the
cycles the matrix cores were busy over all SIMDs, of the cycles the dispatch lasted.
"""

from __future__ import annotations

import csv
import io
import shutil
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from benchmarks.devices import Device

COUNTERS = ("SQ_VALU_MFMA_BUSY_CYCLES", "GRBM_GUI_ACTIVE", "SQ_INSTS")
_COLUMNS = ("Dispatch_Id", "Kernel_Name", "Counter_Name", "Counter_Value")


class RocprofError(RuntimeError):
    """rocprofv3 is not there, or its output is no counter table."""


@dataclass(frozen=True)
class Dispatch:
    """One launch. ``mfma_percent`` is MfmaUtil."""

    kernel: str
    cycles: float
    mfma_percent: float
    instructions: float


def command(folder: Path) -> tuple[str, ...]:
    """What runs a process under rocprofv3; its table goes below ``folder``."""
    found = shutil.which("rocprofv3")
    if found is None:
        raise RocprofError("rocprofv3 is not on the PATH: install ROCm's rocprofiler-sdk")
    return (
        found,
        "--pmc",
        *COUNTERS,
        "--output-format",
        "csv",
        "--output-directory",
        str(folder),
        "--",
    )


def parse(text: str, device: Device) -> list[Dispatch]:
    """Dispatches in the order they ran; a counter of several XCDs comes as several rows, busy
    cycles add up and the longest of the active ones counts."""
    rows = list(csv.DictReader(io.StringIO(text)))
    missing = [name for name in _COLUMNS if not rows or name not in rows[0]]
    if missing:
        raise RocprofError(f"rocprofv3's table has no column {', '.join(missing)}")
    kernels: dict[int, str] = {}
    values: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        dispatch = int(row["Dispatch_Id"])
        kernels[dispatch] = row["Kernel_Name"]
        values[dispatch][row["Counter_Name"]].append(float(row["Counter_Value"]))
    absent = sorted(set(COUNTERS) - {name for found in values.values() for name in found})
    if absent:
        raise RocprofError(f"rocprofv3 did not collect {', '.join(absent)}")
    simds = device.kernel_sms * device.simds_per_sm
    found = []
    for dispatch in sorted(kernels):
        counted = values[dispatch]
        cycles = max(counted["GRBM_GUI_ACTIVE"], default=0.0)
        busy = sum(counted["SQ_VALU_MFMA_BUSY_CYCLES"])
        percent = 100 * busy / (cycles * simds) if cycles else 0.0
        found.append(Dispatch(kernels[dispatch], cycles, percent, sum(counted["SQ_INSTS"])))
    return found
