"""``calibrate``: how far this machine's readings can be trusted.

The same commit is measured in several fresh processes (A/A): what differs is the instrument, and
where the process's memory lies. The cold latency is held against ``ncu``'s own
``gpu__time_duration``. Both time one call on cleared caches, so both meet the same fall of the
clock within a heavy kernel, and neither is scaled.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from warpwatch.config import results_file
from warpwatch.config.package import load as load_package
from warpwatch.config.package import workloads as load_workloads
from warpwatch.instruments import presence
from warpwatch.instruments.counters import ncu
from warpwatch.instruments.outcome import Outcome
from warpwatch.session import series_versions, utilization
from warpwatch.session.session import Session, make_ready

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Row:
    """One workload. ``cv`` is the standard deviation of the processes' medians over their mean,
    a range their largest less their smallest; ``unstable`` the share of processes whose latency
    came with a note. ``ncu_mhz`` is the clock within the kernel. NaN (in JSON
    ``null``) where nothing was read."""

    workload: str
    processes: int
    us: float
    us_cv_percent: float
    us_range_percent: float
    unstable: float
    ncu_us: float
    ncu_mhz: float
    difference_percent: float
    tensor_pipe: float
    tensor_pipe_range: float
    sm_cycles_cv_percent: float
    sm_cycles_range_percent: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workload",
        action="append",
        default=[],
        metavar="NAME",
        help="these workloads (default: the history set)",
    )
    parser.add_argument("--processes", type=int, default=10, metavar="N", help="default 10")
    parser.add_argument(
        "--seconds",
        type=float,
        default=math.inf,
        metavar="S",
        help="start no process, after the second, that would end later than this",
    )
    parser.add_argument("--no-counters", action="store_true", help="times alone, without ncu")
    parser.add_argument("--json", metavar="FILE", help="write the rows to FILE; - is stdout")


def main(args: argparse.Namespace) -> int:
    if args.processes < 2:
        raise ValueError(f"--processes: expected 2 or more, got {args.processes}")
    if not args.seconds >= 0:
        raise ValueError(f"--seconds: expected 0 or more, got {args.seconds:g}")
    known = load_workloads()
    default = load_package().sets.history or [one.name for one in known.all_workloads()]
    names = [known.get(name).name for name in args.workload or default]
    if not presence.has_gpu():
        print("no GPU: nothing measured", file=sys.stderr)
        return 3
    timed: list[dict[str, Outcome]] = []
    counted: list[dict[str, Outcome]] = []
    sessions: list[Session] = []
    _keep(args, names, sessions, timed, counted)  # before anything is measured: is it writable?
    begin = time.monotonic()
    sessions += [Session({"mode": "latency", "methods": ["cold"]}) for _ in range(args.processes)]
    try:
        make_ready(sessions)
        _measure(sessions, names, args, begin, timed, counted)
    finally:
        for session in sessions:
            session.discard()
    rows = _keep(args, names, sessions, timed, counted, last=True)
    if args.json == "-":
        print(results_file.as_json(document(rows, sessions)))
    else:
        print("\n".join(lines(rows)))
    return 0 if any(not math.isnan(one.us) for one in rows) else 3


def document(rows: Sequence[Row], sessions: Sequence[Session] = ()) -> dict[str, Any]:
    """``ceilings`` is there where they were measured on a card without a datasheet."""
    cards = [session.card for session in sessions if session.card]
    found = [session.ceilings for session in sessions if session.ceilings]
    # Each process measures its own: the first one's stand for all.
    measured = {"ceilings": found[0].to_json()} if found else {}
    return {
        "schema_version": SCHEMA_VERSION,
        "card": cards[0] if cards else {},
        **measured,
        "method": series_versions.TIMES,
        "rows": [asdict(row) for row in rows],
    }


def _keep(
    args: argparse.Namespace,
    names: Sequence[str],
    sessions: Sequence[Session],
    timed: Sequence[dict[str, Outcome]],
    counted: Sequence[dict[str, Outcome]],
    *,
    last: bool = False,
) -> list[Row]:
    """The rows of the processes there were so far, written to ``--json``."""
    rows = [row(name, timed, counted) for name in names]
    results_file.write(args.json, document(rows, sessions), last=last)
    return rows


def _measure(
    sessions: Sequence[Session],
    names: Sequence[str],
    args: argparse.Namespace,
    begin: float,
    timed: list[dict[str, Outcome]],
    counted: list[dict[str, Outcome]],
) -> None:
    ready = time.monotonic()  # all of them are: none takes that time again
    refusals: set[str] = set()  # each is said once
    for number, session in enumerate(sessions):
        now = time.monotonic()
        spent = now - begin
        if number >= 2 and spent + (now - ready) / number > args.seconds:
            print(f"{number} processes took {spent:.0f} s: no further one", file=sys.stderr)
            break
        print(f"process {number + 1} of {args.processes}", file=sys.stderr, flush=True)
        timed.append(session.run(names))
        right = [name for name, outcome in timed[-1].items() if outcome.status == "ok"]
        try:
            counted.append({} if args.no_counters else utilization.by_ncu(right))
        except (ncu.CountersRefusedError, ValueError) as refused:
            if str(refused) not in refusals:
                print(f"no hardware counters: {refused}", file=sys.stderr)
            refusals.add(str(refused))
            counted.append({})
        _keep(args, names, sessions, timed, counted)


def row(
    name: str, timed: Sequence[dict[str, Outcome]], counted: Sequence[dict[str, Outcome]]
) -> Row:
    """What the processes say of one workload."""
    right = [run[name] for run in timed if run[name].status == "ok"]
    medians = [statistics.median(outcome.samples["latency_cold"]) for outcome in right]
    notes = [float(outcome.evidence["latency_cold"]["unstable"]) for outcome in right]
    by_ncu = [run[name] for run in counted if name in run and run[name].status == "ok"]
    us = _median(medians)
    ncu_us = _median([ncu.duration_us(outcome) for outcome in by_ncu])
    pipes = [statistics.median(outcome.samples["tensor_pipe"]) for outcome in by_ncu]
    cycles = [statistics.median(outcome.samples["sm_cycles"]) for outcome in by_ncu]
    return Row(
        name,
        len(right),
        us,
        _cv_percent(medians),
        100 * _range(medians) / us,
        statistics.fmean(notes) if notes else math.nan,
        ncu_us,
        _median([ncu.mhz(outcome) for outcome in by_ncu]),
        100 * (us / ncu_us - 1),
        _median(pipes),
        _range(pipes),
        _cv_percent(cycles),
        100 * _range(cycles) / _median(cycles),
    )


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else math.nan


def _cv_percent(values: Sequence[float]) -> float:
    if len(values) < 2:
        return math.nan
    return 100 * statistics.stdev(values) / statistics.fmean(values)


def _range(values: Sequence[float]) -> float:
    return max(values) - min(values) if values else math.nan


def lines(rows: Sequence[Row]) -> list[str]:
    head = (
        f"{'workload':<44}{'us':>9}{'cv %':>6}{'range':>7}{'unstable':>9}{'ncu us':>9}"
        f"{'MHz':>6}{'diff %':>7}{'pipe %':>7}{'range':>6}{'cycles cv':>10}{'range':>7}"
    )
    return [head] + [
        f"{one.workload:<44}{one.us:>9.2f}{one.us_cv_percent:>6.2f}{one.us_range_percent:>7.2f}"
        f"{one.unstable:>9.2f}{one.ncu_us:>9.2f}{one.ncu_mhz:>6.0f}{one.difference_percent:>7.2f}"
        f"{one.tensor_pipe:>7.2f}{one.tensor_pipe_range:>6.2f}{one.sm_cycles_cv_percent:>10.3f}"
        f"{one.sm_cycles_range_percent:>7.3f}"
        for one in rows
    ]
