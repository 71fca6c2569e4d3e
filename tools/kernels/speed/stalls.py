"""Where the clocks of a call go on a GPU, ours and a peer's: units, shared memory and stalls.

    python -m tools.kernels.speed.stalls WORKLOAD "WORKLOAD @ fa4"

Every workload is called once under ``ncu --clock-control none``, after calls that compile it. The
table has a column for each launch of at least a twentieth of its call, and a row for each counter.
Stalls are clocks for which a scheduler's warps waited, thousands, so they can be added up and
compared between kernels that issue different numbers of instructions. ``--log FILE`` prints the
table of a log that was kept by ``--keep FILE``.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tools.root import ROOT
from warpwatch.instruments.counters import marked as marks
from warpwatch.instruments.counters import ncu
from warpwatch.instruments.peers import registry as peers

SECTIONS = (
    *("SpeedOfLight", "WarpStateStats", "SchedulerStats", "MemoryWorkloadAnalysis"),
    *("ComputeWorkloadAnalysis", "InstructionStats", "LaunchStats"),
)
METRICS = (
    "sm__cycles_active.avg",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "smsp__issue_active.avg",
    "smsp__inst_executed.sum",
    "smsp__inst_executed_pipe_xu.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "l1tex__data_bank_conflicts_pipe_lsu.sum",
    "lts__t_sectors.sum",
    "dram__bytes.sum",
    "gpu__time_duration.sum",
)
# What is printed of them: name, the metric, what one of its units is divided by, digits.
ROWS = (
    ("time, us", "gpu__time_duration.sum", 1e3, 1),
    ("clocks at work, thousands", "sm__cycles_active.avg", 1e3, 1),
    ("tensor cores busy, %", METRICS[1], 1.0, 1),
    ("instructions issued, % of clocks", METRICS[2], 1.0, 1),
    ("instructions, millions", "smsp__inst_executed.sum", 1e6, 1),
    ("of special functions, millions", "smsp__inst_executed_pipe_xu.sum", 1e6, 1),
    ("wavefronts of shared memory, millions", METRICS[6], 1e6, 2),
    ("bank conflicts, millions", "l1tex__data_bank_conflicts_pipe_lsu.sum", 1e6, 2),
    ("sectors of L2, millions", "lts__t_sectors.sum", 1e6, 1),
    ("bytes of memory, MB", "dram__bytes.sum", 1e6, 1),
)
STALL = ("smsp__average_warps_issue_stalled_", "_per_issue_active.ratio")
LEAST = 0.05  # of a call's time

Launch = dict[str, str]  # a row of ncu's table, by column


def call(names: Sequence[str]) -> None:
    """What ``ncu`` runs: a mark, then a call, of each workload."""
    for name in names:
        outcome = ncu.profile_between_marks(peers.get(name), 1)
        if outcome.status != "ok":
            raise RuntimeError(f"{name}: {outcome.status}: {outcome.detail}")


def profiled(names: Sequence[str], log: Path) -> str:
    """``ncu``'s log of a call of each workload."""
    options = ["--clock-control=none", "--profile-from-start=off", "--csv", "--page=raw"]
    options += ["--print-units=base", f"--metrics={','.join(METRICS)}", f"--log-file={log}"]
    options += [f"--section={one}" for one in SECTIONS]
    script = [sys.executable, "-m", "tools.kernels.speed.stalls", "--call", *names]
    subprocess.run([ncu.find(), *options, *script], cwd=ROOT, check=True, timeout=900)
    return log.read_text(encoding="utf-8")


def launches(log: str) -> list[list[Launch]]:
    """The launches of each call, by the marks between them."""
    table = [line for line in log.splitlines() if line.startswith('"')]
    found: list[list[Launch]] = []
    for row in csv.DictReader(table):
        if not row["ID"]:
            continue  # the row after the header holds the units
        if marks.KERNEL in row["Kernel Name"]:
            found.append([])
        elif found:
            found[-1].append(row)
    return found


def value(launch: Mapping[str, str], metric: str) -> float | None:
    """A counter; None where ``ncu`` gives none on this card."""
    try:
        return float(launch.get(metric, "").replace(",", ""))
    except ValueError:
        return None


def stalls(launch: Mapping[str, str]) -> dict[str, float]:
    """Thousands of clocks for which warps of a scheduler waited, by the reason."""
    issued = value(launch, "smsp__issue_active.avg") or 0.0
    return {
        name.removeprefix(STALL[0]).removesuffix(STALL[1]): ratio * issued / 1e3
        for name in launch
        if name.startswith(STALL[0]) and name.endswith(STALL[1])
        if (ratio := value(launch, name)) is not None
    }


def table(names: Sequence[str], calls: Sequence[Sequence[Launch]]) -> Iterator[str]:
    """Lines: which launch a column is, counters, and stalls, the longest first.

    Raises:
        ValueError: The log has another number of calls than there are names.
    """
    if len(names) != len(calls):
        raise ValueError(f"expected {len(names)} calls in the log, got {len(calls)}")
    columns: list[Launch] = []
    for name, own in zip(names, calls, strict=True):
        times = [value(one, "gpu__time_duration.sum") or 0.0 for one in own]
        for one, time in zip(own, times, strict=True):
            if time >= LEAST * sum(times):
                columns.append(one)
                yield f"({len(columns)}) {name}: {one['Kernel Name'][:80]}"
    yield f"{'':<40}" + "".join(f"{f'({n + 1})':>12}" for n in range(len(columns)))
    for label, metric, unit, digits in ROWS:
        read = [value(one, metric) for one in columns]
        if any(one is not None for one in read):
            yield _line(label, [None if one is None else one / unit for one in read], digits)
    each = [stalls(one) for one in columns]
    most = {reason: max(one.get(reason, 0.0) for one in each) for own in each for reason in own}
    if most:
        yield "warps of a scheduler waited for, thousands of clocks:"
    for reason in sorted(most, key=lambda one: -most[one]):
        yield _line(f"  {reason}", [one.get(reason) for one in each], 1)


def _line(label: str, values: Sequence[float | None], digits: int) -> str:
    cells = ("" if one is None else f"{one:,.{digits}f}" for one in values)
    return f"{label:<40}" + "".join(f"{cell:>12}" for cell in cells)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.kernels.speed.stalls",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("workloads", nargs="+", metavar="WORKLOAD")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="keep ncu's log there")
    parser.add_argument("--log", type=Path, metavar="FILE", help="print a log that was kept")
    parser.add_argument("--call", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    names = [peers.get(name).name for name in args.workloads]
    if args.call:
        call(names)
        return 0
    if args.log:
        log = args.log.read_text(encoding="utf-8")
    else:
        with tempfile.TemporaryDirectory() as folder:
            log = profiled(names, Path(folder, "log"))
        if args.keep:
            args.keep.write_text(log, encoding="utf-8")
    print("\n".join(table(names, launches(log))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
