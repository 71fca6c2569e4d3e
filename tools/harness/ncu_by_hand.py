"""The suite's counters beside ``ncu`` run by hand, reading by reading in turn.

    python -m tools.harness.ncu_by_hand [WORKLOAD ...] [--readings N | --calls N]

A reading is a process and the median of three calls: *ours* as the suite reads them, with a worker,
marks between the calls and all its metrics; *by hand* what ``ncu --clock-control none`` prints of
the same calls in a script that knows nothing of these, asked for the metrics compared alone. Both
leave ``ncu`` to clear the caches. A line a counter: the readings, the difference of their medians
and how far those of each side lie apart, in points for the tensor pipe, else in %.

With ``--calls`` it is so many calls of each by turns in one process, all asked for the suite's
metrics: where tensors lie differs between processes and not within one. A line has the medians,
their difference, and half of the 95 % interval of each.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.root import ROOT
from warpwatch.instruments.counters import ncu
from warpwatch.instruments.gpu.latency import median_interval
from warpwatch.instruments.outcome import Outcome
from warpwatch.instruments.peers import registry as peers
from warpwatch.session.session import Session, make_ready, side_by_side
from warpwatch.workload.base import Workload

WORKLOADS = (
    "matmul-fp16-1024x1024x1024",
    "matmul-fp16-2048x2048x2048",
    "matmul-fp16-4096x4096x4096",
    "matmul-fp16-4096x4096x4096 @ cublas",
    "attention-bf16-B2-S4096-H32-D128",
    "attention-backward-bf16-B4-S4096-H32-D64",
    "attention-kvcache-bf16-B16-S1-KV4096-H32-G8-D128-causal",
)
METRICS = {
    "tensor_pipe": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "sm_cycles": "sm__cycles_active.avg",
    "instructions": "smsp__inst_executed.sum",
    "dram_bytes": "dram__bytes.sum",
}
CALLS = 3
SECONDS = 60.0  # a process may take

Reading = dict[str, dict[str, float]]  # workload, counter
Turns = dict[str, dict[str, dict[str, list[float]]]]  # workload, side, counter


def call_profiled(names: Sequence[str]) -> None:
    """What ``ncu`` is run over by hand: three calls of each, once a line comes."""
    import torch

    torch.zeros(1, device="cuda")
    print("ready", flush=True)
    if not sys.stdin.readline():
        return  # who started it is gone
    profiler = torch.cuda.cudart()
    for name in names:
        workload = peers.get(name)
        inputs = workload.inputs("cuda", seed=0)
        workload.call(inputs)  # compiles
        torch.cuda.synchronize()
        for _ in range(CALLS):
            profiler.cudaProfilerStart()
            workload.call(inputs)
            torch.cuda.synchronize()
            profiler.cudaProfilerStop()


def call_by_turns(names: Sequence[str], rounds: int) -> None:
    """What one ``ncu`` is run over with ``--calls``: ours as the worker makes it, which begins with
    a mark, and by hand; in the next round by hand, and ours."""
    import torch

    profiler = torch.cuda.cudart()

    def by_hand(workload: Workload) -> None:
        inputs = workload.inputs("cuda", seed=0)
        workload.call(inputs)
        torch.cuda.synchronize()
        profiler.cudaProfilerStart()
        workload.call(inputs)
        torch.cuda.synchronize()
        profiler.cudaProfilerStop()

    for name in names:
        workload = peers.get(name)
        for number in range(rounds):
            if number % 2:
                by_hand(workload)
            outcome = ncu.profile_between_marks(workload, 1)
            assert outcome.status == "ok", outcome
            if not number % 2:
                by_hand(workload)


def by_turns(log: str, names: Sequence[str], rounds: int) -> Turns:
    """The samples of both sides, by workload, side and counter. ``ValueError`` where the launches
    are not those of :func:`call_by_turns`."""
    marked = ncu.calls(ncu.parse(log))
    if len(marked) != rounds * len(names):
        raise ValueError(f"{len(marked)} marks, expected {rounds * len(names)}")
    found = {}
    for at, name in enumerate(names):
        mine = marked[at * rounds : (at + 1) * rounds]
        one = len(mine[1])  # behind the second mark there is a call of ours alone
        if [len(launches) for launches in mine] != [3 * one, one] * (rounds // 2):
            raise ValueError(f"{name}: {[len(launches) for launches in mine]} launches")
        ours = [launches[:one] for launches in mine]
        behind = [launches[one:] for launches in mine[::2]]
        hand = [half for both in behind for half in (both[:one], both[one:])]
        found[name] = {
            side: {key: list(values) for key, values in ncu.of_calls(calls).items()}
            for side, calls in (("ours", ours), ("by hand", hand))
        }
    return found


def in_one_process(names: Sequence[str], rounds: int) -> Turns:
    side_by_side({"mode": "ahead"}, names, len(names))
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        turns = ["--call-by-turns", str(rounds), *names]
        script = [sys.executable, "-m", "tools.harness.ncu_by_hand", *turns]
        subprocess.run([*ncu.command(log), *script], cwd=ROOT, check=True, timeout=1800)
        return by_turns(log.read_text(encoding="utf-8"), names, rounds)


def lines_by_turns(found: Turns) -> list[str]:
    printed = [f"{'':<69}{'ours':>14}{'by hand':>14}{'differs':>9}  known to, points or %"]
    for workload, sides in found.items():
        for counter in METRICS:
            read = [side[counter] for side in sides.values()]
            middles = [statistics.median(side) for side in read]
            unit = 1.0 if counter == "tensor_pipe" else middles[1] / 100
            digits = 2 if counter == "tensor_pipe" else 0
            halves = [(high - low) / 2 / unit for low, high in map(median_interval, read)]
            printed.append(
                f"{workload:<56}{counter:<13}"
                + "".join(f"{middle:>14.{digits}f}" for middle in middles)
                + f"{(middles[0] - middles[1]) / unit:>+9.2f}"
                + "".join(f"{half:>7.2f}" for half in halves)
            )
    return printed


class ByHand:
    """``ncu`` over :func:`call_profiled`, started before anything is read."""

    def __init__(self, names: Sequence[str], log: Path) -> None:
        self.log = log
        options = ["--clock-control=none", "--profile-from-start=off", "--csv", "--page=raw"]
        options += ["--print-units=base", f"--metrics={','.join(METRICS.values())}"]
        script = [sys.executable, "-m", "tools.harness.ncu_by_hand", "--call", *names]
        self.process = subprocess.Popen(
            [ncu.find(), *options, f"--log-file={log}", *script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
        )
        assert self.process.stdout is not None
        self.ready = self.process.stdout

    def wait_ready(self) -> None:
        while (line := self.ready.readline()) and line.strip() != "ready":
            pass

    def launches(self) -> list[tuple[str, dict[str, float]]]:
        """Let it run to its end: the launches ``ncu`` wrote, in order."""
        said, _ = self.process.communicate("\n", timeout=SECONDS)
        if self.process.returncode:
            raise RuntimeError(f"ncu by hand ended with {self.process.returncode}: {said[-300:]}")
        return parsed(self.log.read_text(encoding="utf-8"))


def parsed(log: str) -> list[tuple[str, dict[str, float]]]:
    """Kernel and counters of each row of ``ncu``'s table; ``ValueError`` for what is no number."""
    rows = csv.DictReader(line for line in log.splitlines() if line.startswith('"'))
    return [
        (
            row["Kernel Name"],
            {name: float(row[metric].replace(",", "")) for name, metric in METRICS.items()},
        )
        for row in rows
        if row["ID"]  # the one after the header holds the units
    ]


def by_workload(
    launches: Sequence[tuple[str, dict[str, float]]], expected: Mapping[str, Sequence[str]]
) -> Reading:
    """Medians of each workload's calls, whose launches are ``expected``: sums, and the tensor pipe
    of the cycles of all. ``ValueError`` where other kernels were launched."""
    found: Reading = {}
    at = 0
    for workload, kernels in expected.items():
        calls: list[dict[str, float]] = []
        for _ in range(CALLS):
            call = launches[at : at + len(kernels)]
            at += len(kernels)
            if [kernel for kernel, _ in call] != list(kernels):
                raise ValueError(f"{workload}: {[kernel for kernel, _ in call]} not {kernels}")
            one = {name: sum(counted[name] for _, counted in call) for name in METRICS}
            busy = sum(counted["tensor_pipe"] * counted["sm_cycles"] for _, counted in call)
            calls.append({**one, "tensor_pipe": busy / one["sm_cycles"]})
        found[workload] = {name: statistics.median(one[name] for one in calls) for name in METRICS}
    if at != len(launches):
        raise ValueError(f"{len(launches)} launches by hand, {at} of ours")
    return found


def ours(session: Session, names: Sequence[str], log: Path) -> dict[str, Outcome]:
    """As ``counters.by_ncu`` reads one process. ``ValueError`` unless all was counted."""
    outcomes = session.run_once(names)
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    found = ncu.combine(outcomes, text + session.errors)
    for name in names:
        if name not in found or found[name].status != "ok":
            raise ValueError(f"{name} was not counted: {found.get(name)}")
    return found


def medians(outcomes: Mapping[str, Outcome]) -> Reading:
    return {
        name: {key: statistics.median(one.samples[key]) for key in METRICS}
        for name, one in outcomes.items()
    }


def kernels(outcomes: Mapping[str, Outcome]) -> dict[str, list[str]]:
    """What a call of each launched."""
    return {
        name: [launch["kernel"] for launch in one.evidence["calls"][0]]
        for name, one in outcomes.items()
    }


def lines(mine: Sequence[Reading], hand: Sequence[Reading]) -> list[str]:
    """A line a workload and counter that both sides have read."""
    found = [
        f"{'workload':<56}{'counter':<13}{'ours':>30}{'by hand':>30}{'differ':>8}{'apart':>14}"
    ]
    for workload in mine[0]:
        for counter in METRICS:
            sides = [[one[workload][counter] for one in side] for side in (mine, hand)]
            middles = [statistics.median(side) for side in sides]
            points = counter == "tensor_pipe"
            unit = 1.0 if points else middles[1] / 100
            digits = 2 if points else 0
            cells = [" ".join(f"{value:.{digits}f}" for value in side) for side in sides]
            apart = [(max(side) - min(side)) / unit for side in sides]
            found.append(
                f"{workload:<56}{counter:<13}{cells[0]:>30}{cells[1]:>30}"
                f"{(middles[0] - middles[1]) / unit:>+8.2f}{apart[0]:>7.2f}{apart[1]:>7.2f}"
            )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.harness.ncu_by_hand",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS))
    parser.add_argument("--readings", type=int, default=3, metavar="N", help="of each, default 3")
    parser.add_argument("--calls", type=int, default=0, metavar="N", help="an even number")
    parser.add_argument("--call", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--call-by-turns", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    names = [peers.get(name).name for name in args.workloads]
    if args.call:
        call_profiled(names)
        return 0
    if args.call_by_turns:
        call_by_turns(names, args.call_by_turns)
        return 0
    if args.calls % 2:
        parser.error(f"--calls: expected an even number, got {args.calls}")
    if args.calls:
        print("\n".join(lines_by_turns(in_one_process(names, args.calls))))
        return 0
    begin = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - begin:5.1f} s {line}", file=sys.stderr, flush=True)

    mine: list[Reading] = []
    hand: list[Reading] = []
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder) / f"{side}-{n}" for n in range(args.readings) for side in ("o", "h")]
        sessions = [Session({"mode": "counters"}, wrap=ncu.command(log)) for log in logs[::2]]
        others = [ByHand(names, log) for log in logs[1::2]]
        try:
            make_ready(sessions)  # no process starts while another is read
            for other in others:
                other.wait_ready()
            say("all processes are ready")
            side_by_side({"mode": "ahead"}, names, len(names))
            say("all is compiled")
            for session, log, other in zip(sessions, logs[::2], others, strict=True):
                try:
                    counted = ours(session, names, log)
                    say("read by ours")
                    by_hand = by_workload(other.launches(), kernels(counted))
                    say("read by hand")
                except (RuntimeError, ValueError, subprocess.TimeoutExpired) as wrong:
                    say(f"this reading is left out: {wrong}")
                else:
                    mine.append(medians(counted))
                    hand.append(by_hand)
        finally:
            for session in sessions:
                session.discard()
            for other in others:
                other.process.kill()
                other.process.wait(timeout=60)
            if hand:
                print("\n".join(lines(mine, hand)))
    return 0 if hand else 3


if __name__ == "__main__":
    sys.exit(main())
