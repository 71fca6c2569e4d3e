"""``peers``: workloads next to every implementation that can be imported here.

What is measured is written to ``--json`` as it comes. A stop (Ctrl-C, SIGTERM) ends the measuring
and still prints the table; ``--seconds`` ends it in time.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from warpwatch import devices
from warpwatch.config import results_file
from warpwatch.config.package import workloads as load_workloads
from warpwatch.instruments import presence
from warpwatch.instruments.counters import ncu
from warpwatch.instruments.gpu import measuring
from warpwatch.instruments.gpu.latency import relative_spread
from warpwatch.instruments.outcome import Outcome
from warpwatch.instruments.peers import registry as peers
from warpwatch.session import series_versions, utilization
from warpwatch.session.session import Session, compile_ahead
from warpwatch.session.stopping import Stopped, stopped_by_sigterm
from warpwatch.workload.base import Workload

SCHEMA_VERSION = 1
# Of --seconds; the counters have what the timing leaves, less the time a profiler takes to end.
_TIMING_SHARE = 0.6
_PROFILER_ENDS_S = 5.0
# The processes that compile ahead take as long at least: with little more time each workload is
# compiled in its turn, so that there are rows when the time is up.
_COMPILING_AHEAD_S = 60.0


@dataclass(frozen=True)
class Row:
    """One implementation of one workload. Shares are of the datasheet's peak (without one, of the
    ceiling that was measured) and of the peak at the clock: that within the kernel where counters
    were read, else that right after it. ``tensor_pipe`` is the hardware counter's word. ``gbps``
    are the bytes the work itself takes, each operand and result once, a second: what a cache
    serves again is not in it.
    ``versus_best`` is the best peer's time over this one's: above 1 is faster than every peer."""

    workload: str
    by: str
    status: str
    detail: str = ""
    us: float | None = None
    noise_percent: float | None = None
    tflops: float | None = None
    gbps: float | None = None
    peak_percent: float | None = None
    clock_percent: float | None = None
    tensor_pipe: float | None = None
    peak_bytes: float | None = None
    relative_error: float | None = None
    versus_best: float | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--group", help="workloads of this group only")
    parser.add_argument("--kernel", help="workloads of this kernel only")
    parser.add_argument(
        "--workload",
        action="append",
        default=[],
        metavar="NAME",
        help="these workloads only, each of the group and kernel if those are named too",
    )
    parser.add_argument(
        "--peer", action="append", default=[], metavar="NAME", help="these peers only"
    )
    parser.add_argument(
        "--counters", action="store_true", help="read tensor-core activity from counters as well"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        metavar="S",
        help="begin nothing that would end later than this, compiling included: less than "
        f"{_COMPILING_AHEAD_S:.0f} has each workload compiled in its turn, else all are first, on "
        "all cores; with --counters, the first six tenths are for the timing",
    )
    parser.add_argument(
        "--json",
        metavar="FILE",
        help="write the rows to FILE, those there are after each; - is stdout, at the end",
    )


def chosen(args: argparse.Namespace) -> list[Workload]:
    """The workloads asked for; ``ValueError`` names what there is."""
    yardstick = load_workloads()
    if args.workload:
        named: list[Workload] = [yardstick.get(name) for name in dict.fromkeys(args.workload)]
        for one in named:
            for option, asked, its in (
                ("--group", args.group, one.group),
                ("--kernel", args.kernel, one.kernel),
            ):
                if asked is not None and asked != its:
                    raise ValueError(
                        f"--workload {one.name} is in {option} {its}, not {asked}: leave out one "
                        "of the two"
                    )
        return named
    found: list[Workload] = list(yardstick.select(kernel=args.kernel, group=args.group))
    if found:
        return found
    groups = sorted({one.group for one in yardstick.select(kernel=args.kernel)})
    kernels = sorted({one.kernel for one in yardstick.select(group=args.group)})
    if groups and kernels:
        raise ValueError(
            f"no workload of kernel {args.kernel!r} in group {args.group!r}: the group has "
            f"--kernel {' '.join(kernels)}; the kernel is in --group {' '.join(groups)}"
        )
    raise ValueError(
        f"no workload of kernel {args.kernel!r} in group {args.group!r}: groups are "
        f"{' '.join(sorted({one.group for one in yardstick.all_workloads()}))}, kernels "
        f"{' '.join(sorted({one.kernel for one in yardstick.all_workloads()}))}"
    )


def main(args: argparse.Namespace) -> int:
    unknown = sorted(set(args.peer) - set(peers.names()))
    if unknown:
        raise ValueError(f"unknown peer {unknown[0]!r}: expected one of {' '.join(peers.names())}")
    if args.seconds is not None and not args.seconds >= 0:
        raise ValueError(f"--seconds: expected 0 or more, got {args.seconds:g}")
    bases = chosen(args)
    if not presence.has_gpu():
        print("no GPU: nothing measured", file=sys.stderr)
        return 3
    names = [
        name
        for base in bases
        for name in (base.name, *(peer.name for peer in peers.next_to(base)))
        if not args.peer or name == base.name or name.partition(peers.SEPARATOR)[2] in args.peer
    ]
    begin = time.time()
    request: dict[str, Any] = {"mode": "beside"}
    until = None
    if args.seconds is not None:
        until = begin + args.seconds - (_PROFILER_ENDS_S if args.counters else 0)
        request["until"] = begin + args.seconds * (_TIMING_SHARE if args.counters else 1)
    run = _Run(args, bases, names, Session(request, seconds_each=240))
    run.keep()  # before anything is measured: the place may not be writable
    code = 0
    try:
        with stopped_by_sigterm():
            run.measure(until)
    except KeyboardInterrupt as stop:
        code, word = (143, "SIGTERM") if isinstance(stop, Stopped) else (130, "Ctrl-C")
        run.why = f"stopped by {word}"
    rows = run.rows()
    run.keep(last=True)
    as_json = args.json == "-"
    print(results_file.as_json(run.document()) if as_json else "\n".join(lines(rows)))
    missing = sum(row.status == "not tried" for row in rows)
    if code or missing:
        done = f"{len(rows) - missing} of {len(rows)} rows measured"
        if run.right and args.counters:
            done += f", counters of {run.with_counters()} of {len(run.right)}"
        print(f"{run.why}: {done}", file=sys.stderr)
    return code or (0 if any(row.status == "ok" for row in rows) else 3)


@dataclass
class _Run:
    """What is measured so far, and its file."""

    args: argparse.Namespace
    bases: Sequence[Workload]
    names: Sequence[str]
    session: Session
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    counted: dict[str, Outcome] = field(default_factory=dict)
    why: str = "time was up"

    def measure(self, until: float | None) -> None:
        if self.args.seconds is None or self.args.seconds >= _COMPILING_AHEAD_S:
            compile_ahead(self.session.request, self.names)
        self.session.run(self.names, self._came)
        if self.args.counters and self.right:
            read = utilization.read(
                self.right, lambda line: print(line, file=sys.stderr), None, until
            )
            self.counted = read.outcomes

    def _came(self, outcome: Outcome) -> None:
        print(f"{outcome.workload}: {outcome.status} {outcome.detail}".rstrip(), file=sys.stderr)
        self.outcomes[outcome.workload] = outcome
        self.keep()

    @property
    def right(self) -> list[str]:
        return [name for name, outcome in self.outcomes.items() if outcome.status == "ok"]

    def with_counters(self) -> int:
        return sum(outcome.status == "ok" for outcome in self.counted.values())

    def rows(self) -> list[Row]:
        missing = {name: Outcome(name, "not tried", self.why) for name in self.names}
        device = devices.identify(str((self.session.card or {}).get("name")))
        roof = device or self.session.ceilings
        return table(self.bases, {**missing, **self.outcomes}, self.counted, roof)

    def document(self) -> dict[str, Any]:
        return document(self.rows(), self.session.card or {}, self.session.ceilings)

    def keep(self, last: bool = False) -> None:
        """Write what there is."""
        results_file.write(self.args.json, self.document(), last=last)


def table(
    bases: Sequence[Workload],
    outcomes: dict[str, Outcome],
    counted: dict[str, Outcome],
    roof: devices.Roof | None,
) -> list[Row]:
    """A row an implementation, a workload's fastest first."""
    rows: list[Row] = []
    for base in bases:
        mine = [
            _row(base, outcome, counted.get(name), roof)
            for name, outcome in outcomes.items()
            if peers.base_name(name) == base.name
        ]
        rivals = [row.us for row in mine if row.us is not None and row.by != peers.OURS]
        best = min(rivals, default=None)
        ranked = sorted(mine, key=lambda row: row.us if row.us is not None else math.inf)
        for row in ranked:
            versus = best / row.us if best is not None and row.us is not None else None
            rows.append(Row(**{**asdict(row), "versus_best": versus}))
    return rows


def _row(
    base: Workload, outcome: Outcome, counted: Outcome | None, roof: devices.Roof | None
) -> Row:
    by = outcome.workload.partition(peers.SEPARATOR)[2] or peers.OURS
    if outcome.status != "ok":
        return Row(base.name, by, outcome.status, outcome.detail)
    times = outcome.samples["latency_cold"]
    us = statistics.median(times)
    tflops = base.flops / us / 1e6
    dtype = measuring.dtype_of(base)
    peak = roof.peak(dtype) if roof is not None and roof.has(dtype) else None
    shares = outcome.samples.get("peak_share")
    pipe = counted.samples.get("tensor_pipe") if counted is not None else None
    at_clock = statistics.median(shares) if shares else None
    if peak and counted is not None and counted.evidence.get("calls"):
        assert roof is not None
        at_clock = 100 * tflops / roof.peak(dtype, clock_ghz=ncu.mhz(counted) / 1000)
    return Row(
        base.name,
        by,
        "ok",
        outcome.detail,
        us,
        100 * relative_spread(times),
        tflops,
        base.bytes_moved / us / 1e3,
        100 * tflops / peak if peak else None,
        at_clock,
        statistics.median(pipe) if pipe else None,
        outcome.samples.get("peak_bytes", (None,))[0],
        max(outcome.samples.get("relative_error", ()), default=None),
    )


def geometric_mean(rows: Iterable[Row]) -> float | None:
    """Of ours against the best peer, over the workloads that have both."""
    ratios = [row.versus_best for row in rows if row.by == peers.OURS and row.versus_best]
    return statistics.geometric_mean(ratios) if ratios else None


def document(
    rows: Sequence[Row], card: dict[str, Any], ceilings: devices.Ceilings | None = None
) -> dict[str, Any]:
    """``ceilings`` is there where shares are of what was measured on a card without a datasheet."""
    measured = {} if ceilings is None else {"ceilings": ceilings.to_json()}
    return {
        "schema_version": SCHEMA_VERSION,
        "card": card,
        **measured,
        "method": series_versions.TIMES,
        "geometric_mean_versus_best_peer": geometric_mean(rows),
        "rows": [asdict(row) for row in rows],
    }


def lines(rows: Sequence[Row]) -> list[str]:
    """The table as text, a block a workload."""
    printed = []
    workload = None
    for row in rows:
        if row.workload != workload:
            workload = row.workload
            printed += [
                "",
                workload,
                f"  {'by':<16}{'us':>10}{'noise %':>9}{'TFLOP/s':>9}{'GB/s':>7}"
                f"{'peak %':>8}{'at clock':>9}{'pipe %':>8}{'best/this':>11}",
            ]
        if row.us is None:
            printed.append(f"  {row.by:<16}  {row.status}: {row.detail}")
            continue
        cells = (
            f"{row.us:>10.2f}{row.noise_percent:>9.2f}{row.tflops:>9.1f}{row.gbps:>7.0f}"
            f"{_cell(row.peak_percent):>8}{_cell(row.clock_percent):>9}{_cell(row.tensor_pipe):>8}"
            f"{_cell(row.versus_best, 3):>11}"
        )
        printed.append(f"  {row.by:<16}{cells}" + (f"  ({row.detail})" if row.detail else ""))
    mean = geometric_mean(rows)
    printed.append("")
    if mean is not None:
        printed.append(f"best peer's time over ours, geometric mean: {mean:.3f}")
    return printed[1:]


def _cell(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
