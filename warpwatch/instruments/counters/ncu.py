"""Hardware counters through Nsight Compute: many workloads in one profiled process.

``ncu`` costs seconds a process, so one worker runs all workloads; each call stands between two
*marks* (:mod:`warpwatch.instruments.counters.marked`). Clocks are left alone
(``--clock-control none``): counters in cycles need no fixed clock. ``ncu`` clears the caches before
each kernel, so its times compare with the cold method.
"""

from __future__ import annotations

import csv
import io
import math
import shutil
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from warpwatch.instruments.method import method_hash
from warpwatch.instruments.outcome import Outcome

from . import marked as marks

if TYPE_CHECKING:
    from warpwatch.workload.base import Workload

# With sm__inst_executed_pipe_tensor.sum among these, an H200 took four times as long a launch.
COLUMNS = {
    "gpu__time_duration.sum": "duration_ns",
    "sm__cycles_active.avg": "sm_cycles",
    "smsp__inst_executed.sum": "instructions",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": "tensor_pipe",
    "dram__bytes.sum": "dram_bytes",
    "sm__cycles_elapsed.avg.per_second": "sm_hz",
}
UNREAD = "ncu gave no number for "
REMEDY = (
    "the driver lets only administrators read counters: set NVreg_RestrictProfilingToAdminUsers=0 "
    "for the nvidia module on the host, or give a trusted container CAP_SYS_ADMIN"
)


class CountersRefusedError(RuntimeError):
    """No counters are to be had; the message says why and what would help."""


@dataclass(frozen=True)
class KernelCounters:
    """One launch as ``ncu`` counted it; NaN is what it did not read."""

    kernel: str
    duration_ns: float
    sm_cycles: float
    instructions: float
    tensor_pipe: float
    dram_bytes: float
    sm_hz: float

    @property
    def kernel_cycles(self) -> float:
        """From its start to its end, at the clock it ran at."""
        return self.duration_ns * self.sm_hz / 1e9

    @property
    def is_mark(self) -> bool:
        return marks.KERNEL in self.kernel

    @property
    def unread(self) -> list[str]:
        """Metrics by ``ncu``'s name of which there is no number."""
        return [
            column for column, name in COLUMNS.items() if not math.isfinite(getattr(self, name))
        ]


def find() -> str:
    """The ``ncu`` program; ``CountersRefusedError`` names the places looked at."""
    found = shutil.which("ncu")
    if found:
        return found
    installed = sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"))
    installed += sorted(Path("/usr/local").glob("cuda*/bin/ncu"))
    if installed:
        return str(installed[-1])
    raise CountersRefusedError(
        "ncu is not on the PATH, nor in /opt/nvidia/nsight-compute or /usr/local/cuda*/bin: "
        "install Nsight Compute"
    )


def command(log: Path) -> tuple[str, ...]:
    """What runs a process under ``ncu``; the counters go to ``log``."""
    return (
        find(),
        "--csv",
        "--page=raw",
        "--print-units=base",
        "--clock-control=none",
        "--profile-from-start=off",
        f"--metrics={','.join(COLUMNS)}",
        f"--log-file={log}",
    )


def parse(text: str) -> list[KernelCounters]:
    """The launches in ``ncu``'s log, in order.

    ``CountersRefusedError`` if it says that counters may not be read; ``ValueError`` that lists
    the missing columns if the log is no such table.
    """
    if "ERR_NVGPUCTRPERM" in text:
        raise CountersRefusedError(f"ERR_NVGPUCTRPERM: {REMEDY}")
    lines = text.splitlines()
    start = next((at for at, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        told = [line for line in lines if line.startswith(("==ERROR==", "==WARNING=="))]
        raise CountersRefusedError("ncu counted nothing: " + (" ".join(told)[:300] or "empty log"))
    # Every cell of the table is quoted. What ncu or the worker said after it is not.
    table = [line for line in lines[start:] if line.startswith('"')]
    rows = list(csv.DictReader(io.StringIO("\n".join(table))))
    missing = [name for name in ("Kernel Name", *COLUMNS) if not rows or name not in rows[0]]
    if missing:
        raise ValueError(f"ncu's log has no column {', '.join(missing)}")
    if any(None in row.values() for row in rows):
        raise ValueError(f"ncu's log ends within a row: {table[-1][:100]}")
    # The row after the header holds the units.
    return [
        KernelCounters(
            row["Kernel Name"], **{name: _number(row[column]) for column, name in COLUMNS.items()}
        )
        for row in rows
        if row["ID"]
    ]


def _number(text: str) -> float:
    try:
        return float(text.replace(",", ""))
    except ValueError:  # empty, or "n/a"
        return math.nan


def calls(launches: Sequence[KernelCounters]) -> list[list[KernelCounters]]:
    """The launches of each marked call. What precedes the first mark belongs to none."""
    found: list[list[KernelCounters]] = []
    for launch in launches:
        if launch.is_mark:
            found.append([])
        elif found:
            found[-1].append(launch)
    return found


def combine(outcomes: Mapping[str, Outcome], text: str) -> dict[str, Outcome]:
    """The worker's outcomes with the counters of the calls they stand for.

    The worker tells how many marks each workload made, so a workload that failed half-way shifts
    nobody else's counters. A launch with a counter that was not read is no measurement.
    """
    marked = calls(parse(text))
    expected = sum(int(outcome.evidence.get("marks", 0)) for outcome in outcomes.values())
    if expected != len(marked):
        raise ValueError(f"ncu's log has {len(marked)} marked calls, the worker made {expected}")
    combined: dict[str, Outcome] = {}
    for name, outcome in outcomes.items():
        mine = [marked.pop(0) for _ in range(int(outcome.evidence.get("marks", 0)))]
        if outcome.status != "ok":
            combined[name] = outcome
        elif not all(mine):
            combined[name] = Outcome(name, "failed", "the call launched no kernel")
        elif lacking := next((one for call in mine for one in call if one.unread), None):
            why = f"{UNREAD}{' '.join(lacking.unread)} of {lacking.kernel}"
            combined[name] = Outcome(name, "failed", why)
        else:
            combined[name] = Outcome(name, "ok", "", of_calls(mine), {"calls": _evidence(mine)})
    return combined


def of_calls(marked: Sequence[Sequence[KernelCounters]]) -> dict[str, tuple[float, ...]]:
    """Metrics by name, a sample a call: sums over its launches; shares weighted by cycles."""
    samples: dict[str, tuple[float, ...]] = {
        name: tuple(sum(getattr(launch, name) for launch in call) for call in marked)
        for name in ("sm_cycles", "kernel_cycles", "instructions", "dram_bytes")
    }
    samples["tensor_pipe"] = tuple(
        sum(launch.tensor_pipe * launch.sm_cycles for launch in call)
        / max(sum(launch.sm_cycles for launch in call), 1.0)
        for call in marked
    )
    return samples


def _evidence(marked: Sequence[Sequence[KernelCounters]]) -> list[list[dict[str, object]]]:
    return [[asdict(launch) for launch in call] for call in marked]


def duration_us(outcome: Outcome) -> float:
    """Median device time of a call as ``ncu`` timed it, to hold our own timing against."""
    per_call = [
        sum(float(launch["duration_ns"]) for launch in call) / 1000
        for call in outcome.evidence["calls"]
    ]
    return statistics.median(per_call)


def mhz(outcome: Outcome) -> float:
    """Median SM clock of the longest launch of each call."""
    longest = [
        max(call, key=lambda launch: float(launch["duration_ns"]))
        for call in outcome.evidence["calls"]
    ]
    return statistics.median(float(launch["sm_hz"]) for launch in longest) / 1e6


def profile_between_marks(workload: Workload, repeats: int) -> Outcome:
    """Runs in the profiled worker: each repeat is one marked call, which alone is profiled."""
    import torch

    def marked(call: marks.Do, mark: marks.Do) -> None:
        profiler = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        profiler.cudaProfilerStart()
        mark()
        call()
        torch.cuda.synchronize()
        profiler.cudaProfilerStop()

    return marks.repeated(workload, repeats, marked)


METHOD_VERSION = "ncu-" + method_hash(__file__, marks.__file__)
