"""The power and the clock that a card holds while a call repeats, ours and peers' interleaved.

    python -m tools.kernels.speed.power WORKLOAD "WORKLOAD @ flash_attn_3" [--json FILE]

Each workload is called without a pause for ``--seconds``, one after the other, ``--rounds`` times.
Meanwhile the driver says the power, the clock and whether a limit lowers it; the first
third of each turn is left out, as the clock settles then. A card at its power limit lowers its
clock, so the time of a call there follows from its energy: at the same power, who takes less
energy a call takes less time. The table has medians over the rounds, and in brackets half the
spread of the times. Thousands of clocks a call are its time multiplied by the clock.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from warpwatch.instruments.gpu import measuring
from warpwatch.instruments.gpu.card.clocks import Reader, nvml_reader
from warpwatch.instruments.gpu.card.interface import Clocks
from warpwatch.instruments.peers import registry as peers

SETTLES = 1 / 3  # of a turn: its readings are left out
EVERY_S = 0.01  # between two readings
QUEUED_S = 0.02  # of calls between two looks at the time


@dataclass(frozen=True)
class Turn:
    """One workload's turn: microseconds a call, and the readings after the clock had settled."""

    us: float
    read: tuple[Clocks, ...]

    def median(self, what: str) -> float:
        """The median of a reading; NaN where the driver gives none."""
        found = [value for one in self.read if (value := getattr(one, what)) is not None]
        return statistics.median(found) if found else float("nan")

    @property
    def capped(self) -> float:
        """Share of the readings at which the power limit lowered the clock."""
        return sum("power cap" in one.throttled for one in self.read) / max(1, len(self.read))


def turn(call: Callable[[], object], read: Reader, seconds: float) -> Turn:
    """Repeat a call on the card for some seconds, and read the card meanwhile."""
    import torch

    found: list[tuple[float, Clocks]] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(EVERY_S):
            found.append((time.monotonic(), read()))

    torch.cuda.synchronize()
    began = time.monotonic()
    call()
    torch.cuda.synchronize()
    at_once = max(1, int(QUEUED_S / max(1e-6, time.monotonic() - began)))
    watcher = threading.Thread(target=watch)
    began, calls = time.monotonic(), 0
    watcher.start()
    try:
        while time.monotonic() - began < seconds:
            for _ in range(at_once):
                call()
            torch.cuda.synchronize()
            calls += at_once
        taken = time.monotonic() - began
    finally:
        over.set()
        watcher.join()
    settled = began + SETTLES * taken
    return Turn(taken / calls * 1e6, tuple(one for at, one in found if at >= settled))


@dataclass(frozen=True)
class Row:
    """What the turns of a workload say together: medians, and half the spread of the times."""

    call: str
    us: float
    spread: float
    tflops: float
    watts: float
    mhz: float
    capped: float

    @property
    def millijoules(self) -> float:
        return self.watts * self.us / 1e3

    @property
    def kiloclocks(self) -> float:
        return self.mhz * self.us / 1e3


def row(name: str, flops: int, turns: Sequence[Turn]) -> Row:
    """The row of a workload of so many floating-point operations."""
    us = statistics.median(one.us for one in turns)
    return Row(
        name,
        us,
        (max(one.us for one in turns) - min(one.us for one in turns)) / 2 / us,
        flops / us / 1e6,
        statistics.median(one.median("power_w") for one in turns),
        statistics.median(one.median("sm_mhz") for one in turns),
        statistics.median(one.capped for one in turns),
    )


def table(rows: Sequence[Row]) -> Iterator[str]:
    """The header, then a line for each row."""
    width = max((len(one.call) for one in rows), default=0)
    head = "  us a call         TFLOP/s    W    MHz  mJ a call  thousand clocks  capped"
    yield f"{'':<{width}}{head}"
    for one in rows:
        yield (
            f"{one.call:<{width}}  {one.us:9,.1f} ({one.spread:.1%}) {one.tflops:7.0f} "
            f"{one.watts:4.0f} {one.mhz:6,.0f} {one.millijoules:10,.1f} {one.kiloclocks:16,.1f} "
            f"{one.capped:7.0%}"
        )


def measured(names: Sequence[str], seconds: float, rounds: int) -> dict[str, list[Turn]]:
    """The turns of each workload, interleaved.

    Args:
        names: Workloads, also of peers (``WORKLOAD @ PEER``).
        seconds: Of a turn.
        rounds: Turns of each.

    Returns:
        The turns by workload.

    Raises:
        RuntimeError: Here is no NVIDIA GPU that can be read, or a peer cannot be called.
    """
    import torch

    from warpwatch.instruments.gpu.card.through_torch import TorchGpu

    read = nvml_reader(TorchGpu().uuid)
    if read is None:
        raise RuntimeError("expected a GPU that NVML can read: install nvidia-ml-py")
    calls: dict[str, Callable[[], object]] = {}
    for name in names:
        workload = peers.get(name)
        if (absent := measuring.missing(workload)) is not None:
            raise RuntimeError(f"{name}: {absent.detail}")
        calls[name] = partial(workload.call, workload.inputs("cuda", seed=0))
        calls[name]()  # compiles
        torch.cuda.synchronize()
    turns: dict[str, list[Turn]] = {name: [] for name in names}
    for n in range(rounds):
        for name in names if n % 2 == 0 else names[::-1]:
            turns[name].append(turn(calls[name], read, seconds))
        print(f"round {n + 1} of {rounds}", file=sys.stderr, flush=True)
    return turns


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.kernels.speed.power",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("workloads", nargs="+", metavar="WORKLOAD")
    parser.add_argument("--seconds", type=float, default=1.0, help="of a workload's turn")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each workload")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table there, too")
    args = parser.parse_args(arguments)
    try:
        turns = measured(args.workloads, args.seconds, args.rounds)
    except (RuntimeError, ValueError, KeyError) as error:
        parser.error(str(error))
    found = [row(name, peers.get(name).flops, own) for name, own in turns.items()]
    print("\n".join(table(found)))
    if args.json:
        text = json.dumps([asdict(one) for one in found], indent=1)
        args.json.write_text(f"{text}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
