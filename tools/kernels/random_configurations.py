"""Random configurations of every public operator against the plain formula and fp64, on a GPU.

    python -m tools.kernels.random_configurations --count 3000 --jobs 14 --seconds 330 --seed 1

A configuration follows from its seed alone; ``--only SEED`` repeats one and prints its trace,
``--only SEED SEED ...`` several at once. What failed, its seed and the whole configuration are
written as they come. Memory that no kernel wrote is NaN. A process that crashes or hangs is told
with its configuration and replaced. With TRITON_INTERPRET=1 and small ``--longest`` the same runs
on the CPU.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from tests.kernels.findings import Drawn, Finding
from tools.kernels.drawn_cases import SHAPES, draw

SPAWN: Any = get_context("spawn")
# A case of a seed, no longer than the second.
Draw = Callable[[int, int], Drawn]
HANGS_AFTER = 120.0  # seconds a configuration may take, its compilation with it
# After these a CUDA context gives nothing but errors.
FATAL = ("CUDA error", "Triton Error [CUDA]", "illegal memory access", "misaligned address")


@dataclass(frozen=True)
class Told:
    """What came of the configuration of a seed."""

    seed: int
    operator: str
    problem: str = ""
    findings: tuple[Finding, ...] = ()
    seconds: float = 0.0
    fatal: bool = False


def answer(seed: int, longest: int, device: str, draw: Draw = draw) -> Told:
    from tests.kernels import on_card

    drawn = draw(seed, longest)
    started = time.monotonic()
    try:
        with on_card.Made(device):
            findings = tuple(drawn.findings(seed))
        problem = "; ".join(one.problem for one in findings if one.problem)
        return Told(seed, drawn.operator, problem, findings, time.monotonic() - started)
    except Exception as error:  # whatever it is, the next configuration is another
        lines = str(error).strip().splitlines()
        text = f"{type(error).__name__}: {' '.join(lines)[:600]}"
        frames = traceback.extract_tb(error.__traceback__)[-3:]
        at = " < ".join(f"{one.filename.rsplit('/', 1)[-1]}:{one.lineno}" for one in frames[::-1])
        fatal = any(word in text for word in FATAL)
        seconds = time.monotonic() - started
        return Told(seed, drawn.operator, f"{text} ({at})", (), seconds, fatal)


def work(pipe: Connection, longest: int, draw: Draw) -> None:
    """Answer seeds until None comes; a broken context ends the process."""
    from tests.kernels import on_card

    device = on_card.prepare()
    while (seeds := pipe.recv()) is not None:
        for seed in seeds:
            told = answer(seed, longest, device, draw)
            pipe.send(told)
            if told.fatal:
                return
        pipe.send(None)


@dataclass
class Process:
    """A worker, and the seeds it has still to answer, the first of them now."""

    longest: int
    draw: Draw
    seeds: list[int] = field(default_factory=list)
    since: float = 0.0

    def start(self) -> None:
        self.pipe, theirs = SPAWN.Pipe()
        self.process = SPAWN.Process(
            target=work, args=(theirs, self.longest, self.draw), daemon=True
        )
        self.process.start()
        theirs.close()

    def give(self, seeds: list[int]) -> None:
        self.seeds, self.since = list(seeds), time.monotonic()
        self.pipe.send(seeds)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def every(
    groups: list[list[int]], jobs: int, seconds: float, longest: int, draw: Draw = draw
) -> Iterable[Told]:
    """Answers as they come, until all are there or the time is up. One process takes a group."""
    stop = time.monotonic() + seconds
    groups = groups[::-1]
    processes = [Process(longest, draw) for _ in range(min(jobs, len(groups)))]
    busy: list[Process] = []
    for one in processes:
        one.start()
        one.give(groups.pop())
        busy.append(one)
    try:
        while busy and time.monotonic() < stop:
            ready = wait([one.pipe for one in busy], timeout=1.0)
            for one in list(busy):
                lost = ""
                told: Told | None = None
                if one.pipe in ready:
                    try:
                        told = one.pipe.recv()
                    except (EOFError, OSError):
                        one.process.join(10.0)
                        lost = f"the process ended with exit code {one.process.exitcode}"
                elif time.monotonic() - one.since > HANGS_AFTER:
                    lost = f"no answer in {HANGS_AFTER:.0f} s"
                else:
                    continue
                one.since = time.monotonic()
                if lost:
                    told = Told(
                        one.seeds[0], draw(one.seeds[0], longest).operator, lost, (), 0.0, True
                    )
                if told is not None:
                    one.seeds.remove(told.seed)
                    yield told
                    if told.fatal:
                        one.end()
                        one.start()
                    if told.fatal and one.seeds:
                        one.give(one.seeds)
                        continue
                if told is None or (told.fatal and not one.seeds):
                    if groups:
                        one.give(groups.pop())
                    else:
                        busy.remove(one)
    finally:
        for one in processes:
            one.end()


@dataclass
class Sum:
    """Of one operator: the worst share of the bar for the maximum, which 1 is at, and the worst RMS
    by the plain formula's where there are a thousand values; of how many configurations numbers
    were drawn again, because the first seemed beyond a bar."""

    done: int = 0
    failed: int = 0
    again: int = 0
    values: int = 0
    share: float = 0.0
    rms: float = 0.0
    seconds: float = 0.0

    def add(self, told: Told) -> None:
        self.done += 1
        self.failed += bool(told.problem)
        self.again += any(one.draws > 1 for one in told.findings)
        self.seconds += told.seconds
        for one in told.findings:
            self.values += one.count
            self.share = max(self.share, math.inf if math.isnan(one.share) else one.share)
            if one.count >= 1000:
                self.rms = max(self.rms, math.inf if math.isnan(one.rms) else one.rms)


def table(sums: dict[str, Sum]) -> str:
    rows = [f"{'operator':<32}{'count':>7}{'failed':>8}{'again':>7}{'worst by bar':>14}"
            f"{'worst RMS':>11}{'values':>15}{'process s':>11}"]  # fmt: skip
    total = Sum()
    for name, one in [*sorted(sums.items()), ("all", total)]:
        if one is not total:
            for part in ("done", "failed", "again", "values", "seconds"):
                setattr(total, part, getattr(total, part) + getattr(one, part))
            total.share, total.rms = max(total.share, one.share), max(total.rms, one.rms)
        rows.append(f"{name:<32}{one.done:>7}{one.failed:>8}{one.again:>7}{one.share:>14.3f}"
                    f"{one.rms:>11.3f}{one.values:>15}{one.seconds:>11.1f}")  # fmt: skip
    return "\n".join(rows)


def once(seed: int, longest: int, draw: Draw = draw) -> int:
    from tests.kernels import on_card

    device = on_card.prepare()
    drawn = draw(seed, longest)
    print(drawn)
    with on_card.Made(device):
        findings = drawn.findings(seed)
    for one in findings:
        print(one)
    return int(any(one.problem for one in findings))


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.kernels.random_configurations")
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--jobs", type=int, default=14, help="processes, each with its own context")
    parser.add_argument("--seconds", type=float, default=330.0, help="what is not done then is not")
    parser.add_argument("--seed", type=int, default=1, help="of the first: seed * 1,000,000")
    parser.add_argument("--longest", type=int, default=2048, help="no length is more")
    parser.add_argument("--log", help="a file for every answer")
    parser.add_argument(
        "--only", type=int, nargs="+", metavar="SEED", help="only these configurations"
    )
    args = parser.parse_args(given)
    if args.only and len(args.only) == 1:
        return once(args.only[0], args.longest)
    sums: dict[str, Sum] = defaultdict(Sum)
    first = args.seed * 1_000_000
    groups = [[seed] for seed in args.only or ()] or [
        list(range(first + at, first + min(args.count, at + SHAPES)))
        for at in range(0, args.count, SHAPES)
    ]
    asked, named = sum(map(len, groups)), "given" if args.only else f"from {first}"
    started = time.monotonic()
    with Path(args.log or os.devnull).open("w", encoding="utf-8", buffering=1) as log:
        for told in every(groups, args.jobs, args.seconds, args.longest):
            sums[told.operator].add(told)
            if told.problem:
                text = (
                    f"FAILED --only {told.seed} {draw(told.seed, args.longest)}\n    {told.problem}"
                )
                print(text, flush=True)
                log.write(text + "\n")
            worst = " ".join(
                f"{one.name}={one.share:.3f}/{one.rms:.3f}"
                + (f" over {one.draws} draws" if one.draws > 1 else "")
                for one in told.findings
            )
            log.write(f"{told.seed} {told.operator} {told.seconds:.2f}s {worst}\n")
        total = sum(one.done for one in sums.values())
        seconds = time.monotonic() - started
        text = f"{table(sums)}\nseeds {named}: {total} of {asked} in {seconds:.0f} s"
        print(text, flush=True)
        log.write(text + "\n")
    return int(any(one.failed for one in sums.values()) or not total)


if __name__ == "__main__":
    sys.exit(main())
