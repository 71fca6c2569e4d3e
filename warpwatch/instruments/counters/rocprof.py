"""Hardware counters of AMD cards through rocprofv3. **Not yet run on a card of ours.**

Written against the ``counter_collection.csv`` that AMD's guide "Using rocprofv3" prints.
Utilization is MfmaUtil: the cycles the matrix cores were busy over all SIMDs, of those the dispatch
lasted.

The tool counts every launch of the process, so a mark
(:mod:`warpwatch.instruments.counters.marked`) stands before and after each call.
"""

from __future__ import annotations

import csv
import io
import math
import shutil
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from warpwatch.devices import Device
from warpwatch.instruments.method import method_hash, version
from warpwatch.instruments.outcome import Outcome

from . import marked as marks

if TYPE_CHECKING:
    from warpwatch.workload.base import Workload

UNPROVEN = "read by rocprofv3, whose reader has not been run on a card of ours"

COUNTERS = ("SQ_VALU_MFMA_BUSY_CYCLES", "GRBM_GUI_ACTIVE", "SQ_INSTS")
_COLUMNS = ("Dispatch_Id", "Kernel_Name", "Counter_Name", "Counter_Value")


class RocprofError(RuntimeError):
    """rocprofv3 is not there, or its output is no counter table."""


@dataclass(frozen=True)
class Dispatch:
    """One launch. ``mfma_percent`` is MfmaUtil. NaN is what rocprofv3 did not read."""

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
        if not all(counted[name] for name in COUNTERS):
            found.append(Dispatch(kernels[dispatch], math.nan, math.nan, math.nan))
            continue
        cycles = max(counted["GRBM_GUI_ACTIVE"])
        busy = sum(counted["SQ_VALU_MFMA_BUSY_CYCLES"])
        percent = 100 * busy / (cycles * simds) if cycles else 0.0
        found.append(Dispatch(kernels[dispatch], cycles, percent, sum(counted["SQ_INSTS"])))
    return found


def table(folder: Path) -> str:
    """The text of the table below ``folder``: that of the worker, whose launches are the most. A
    process it starts may leave one as well. ``RocprofError`` if there is none."""
    found = sorted(folder.rglob("*counter_collection.csv"), key=lambda file: file.stat().st_size)
    if not found:
        raise RocprofError("rocprofv3 wrote no counter_collection.csv")
    return found[-1].read_text(encoding="utf-8", errors="replace")


def combine(outcomes: Mapping[str, Outcome], text: str, device: Device) -> dict[str, Outcome]:
    """The worker's outcomes with the counters of their calls. Each tells how many it marked;
    ``RocprofError`` if the table has not that many."""
    between: list[list[Dispatch]] = []
    for dispatch in parse(text, device):
        if marks.KERNEL in dispatch.kernel:
            between.append([])
        elif between:
            between[-1].append(dispatch)
    told = {name: int(outcome.evidence.get("marks", 0)) for name, outcome in outcomes.items()}
    if len(between) != sum(told.values()):
        raise RocprofError(
            f"rocprofv3's table has {len(between)} marks, the worker made {sum(told.values())}"
        )
    combined: dict[str, Outcome] = {}
    for name, outcome in outcomes.items():
        mine, between = between[: told[name]], between[told[name] :]
        calls = mine[::2]  # what follows the second mark of a call is not the call's
        if outcome.status != "ok":
            combined[name] = outcome
        elif not calls or not all(calls):
            combined[name] = Outcome(name, "failed", "the call launched no kernel")
        elif lacking := next(
            (one for call in calls for one in call if math.isnan(one.cycles)), None
        ):
            why = f"rocprofv3 did not read every counter of {lacking.kernel}"
            combined[name] = Outcome(name, "failed", why)
        else:
            combined[name] = Outcome(name, "ok", UNPROVEN, _of_calls(calls))
    return combined


def _of_calls(calls: list[list[Dispatch]]) -> dict[str, tuple[float, ...]]:
    """A sample a call: instructions add up, the share is weighted by cycles."""
    return {
        "tensor_pipe": tuple(
            sum(one.mfma_percent * one.cycles for one in call)
            / max(sum(one.cycles for one in call), 1.0)
            for call in calls
        ),
        "instructions": tuple(sum(one.instructions for one in call) for call in calls),
    }


def profile_between_marks(workload: Workload, repeats: int) -> Outcome:
    """Runs in the profiled worker: each repeat is a call between two marks."""
    import torch

    def marked(call: marks.Do, mark: marks.Do) -> None:
        mark()
        call()
        mark()
        torch.cuda.synchronize()

    return marks.repeated(workload, repeats, marked)


METHOD_VERSION = version(
    "rocprofv3-f54de456efe7", "33118d1863cb", method_hash(__file__, marks.__file__)
)
