"""Where the clocks of a call go on a GPU, ours and a peer's: units, shared memory and stalls.

    python -m tools.kernels.speed.stalls WORKLOAD "WORKLOAD @ fa4"

Every workload is called once under ``ncu --clock-control none``, after calls that compile it. The
table has a column for each launch of at least a twentieth of its call, and a row for each counter.
Stalls are clocks for which a scheduler's warps waited, thousands, so they can be added up and
compared between kernels that issue different numbers of instructions. ``--log FILE`` prints the
table of a log that was kept by ``--keep FILE``; ``--json FILE`` writes it.

A warp that has nothing to do until its program ends waits at a barrier. Triton rounds the warps of
a program up to a multiple of four, so three of them do in our kernels: 0.75 of the clocks at work.
"""

from __future__ import annotations

import argparse
import csv
import json
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
# What is printed of a launch: its key in JSON, its name, the metric, one of its units, digits.
ROWS = (
    ("us", "time, us", "gpu__time_duration.sum", 1e3, 1),
    ("kiloclocks", "clocks at work, thousands", "sm__cycles_active.avg", 1e3, 1),
    ("least", "of the least busy multiprocessor", "sm__cycles_active.min", 1e3, 1),
    ("most", "of the busiest", "sm__cycles_active.max", 1e3, 1),
    (
        *("tensor_percent", "tensor cores busy, %"),
        *("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", 1.0, 1),
    ),
    (
        *("issued_percent", "instructions issued, % of clocks"),
        *("smsp__issue_active.avg.pct_of_peak_sustained_active", 1.0, 1),
    ),
    ("instructions_m", "instructions, millions", "smsp__inst_executed.sum", 1e6, 1),
    ("special_m", "of special functions, millions", "smsp__inst_executed_pipe_xu.sum", 1e6, 1),
    (
        *("wavefronts_m", "wavefronts of shared memory, millions"),
        *("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", 1e6, 2),
    ),
    (
        *("conflicts_m", "bank conflicts, millions"),
        *("l1tex__data_bank_conflicts_pipe_lsu.sum", 1e6, 2),
    ),
    ("sectors_m", "sectors of L2, millions", "lts__t_sectors.sum", 1e6, 1),
    ("memory_mb", "bytes of memory, MB", "dram__bytes.sum", 1e6, 1),
)
METRICS = (*(metric for _, _, metric, _, _ in ROWS), "smsp__issue_active.avg")
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


def most_of(names: Sequence[str], calls: Sequence[Sequence[Launch]]) -> list[tuple[str, Launch]]:
    """The launches that take at least a twentieth of their call, each with its call's name.

    Raises:
        ValueError: The log has another number of calls than there are names.
    """
    if len(names) != len(calls):
        raise ValueError(f"expected {len(names)} calls in the log, got {len(calls)}")
    found: list[tuple[str, Launch]] = []
    for name, own in zip(names, calls, strict=True):
        times = [value(one, "gpu__time_duration.sum") or 0.0 for one in own]
        least = LEAST * sum(times)
        found += [(name, one) for one, time in zip(own, times, strict=True) if time >= least]
    return found


def rows(names: Sequence[str], calls: Sequence[Sequence[Launch]]) -> list[dict[str, object]]:
    """What ``--json`` writes, a row for each launch: its call, its kernel, the counters by their
    keys, and ``waits``, thousands of clocks by the reason."""
    made: list[dict[str, object]] = []
    for name, launch in most_of(names, calls):
        row: dict[str, object] = {"call": name, "kernel": launch["Kernel Name"][:80]}
        for key, _, metric, unit, digits in ROWS:
            if (read := value(launch, metric)) is not None:
                row[key] = round(read / unit, digits)
        row["waits"] = {reason: round(k, 1) for reason, k in stalls(launch).items() if k >= 0.05}
        made.append(row)
    return made


def table(names: Sequence[str], calls: Sequence[Sequence[Launch]]) -> Iterator[str]:
    """Lines: which launch a column is, counters, and stalls, the longest first.

    Raises:
        ValueError: The log has another number of calls than there are names.
    """
    columns: list[Launch] = []
    for name, one in most_of(names, calls):
        columns.append(one)
        yield f"({len(columns)}) {name}: {one['Kernel Name'][:80]}"
    yield f"{'':<40}" + "".join(f"{f'({n + 1})':>12}" for n in range(len(columns)))
    for _, label, metric, unit, digits in ROWS:
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
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table there, too")
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
    if args.json:
        text = json.dumps(rows(names, launches(log)), indent=1)
        args.json.write_text(f"{text}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
