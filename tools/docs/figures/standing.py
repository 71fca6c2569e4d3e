"""Where the kernels stand against the best peer: medians of ``warpwatch peers``, group by group.

Files of ``warpwatch peers --json`` lie in ``docs/results/data/peers/``, one for each repetition of
a group. Without any, the peers that the published suite measured at its newest commit serve.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import statistics
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tools.docs.figures.markdown import table
from tools.root import ROOT
from warpwatch.instruments.peers.registry import OURS, SEPARATOR
from warpwatch.judge.results.asv_results import read_result

PUBLISHED = ROOT / "reports" / "published" / "h200"
REPETITIONS = ROOT / "docs" / "results" / "data" / "peers"
COUNTERS = REPETITIONS.parent / "counters.json"
POWER = REPETITIONS.parent / "power.json"
_TIME = "track_latency_cold"
# Not those at barriers: warps that have nothing to do wait there, too.
_WAITS = ("wait", "short_scoreboard")
# Their means hide much, so the table has a row for each head dim.
BY_HEAD_DIM = ("attention, gradients", "attention, forward")
_HEAD_DIM = re.compile(r"-D(\d+)\b")
_DTYPE = re.compile(r"-(fp8|fp16|bf16|fp32)\b")
# A workload belongs to the first group with which its name begins.
GROUPS = {
    "attention, gradients": ("attention-backward-", "attention-varlen-backward-"),
    "attention, a training step": ("attention-training-",),
    "attention, decoding": ("attention-kvcache-",),
    "attention, fp8": ("attention-fp8-",),
    "attention, packed sequences": ("attention-varlen-",),
    "attention, forward": ("attention-", "sdpa-"),
    "matmul, fp8": ("matmul-fp8-",),
    "matmul, fp32 and tf32": ("matmul-fp32-",),
    "grouped matmul": ("matmul-grouped-",),
    "matmul, 16 bits": ("matmul-",),
}


@dataclass(frozen=True)
class Time:
    """One implementation's time of one workload, in one run."""

    workload: str
    by: str
    us: float


@dataclass(frozen=True)
class Race:
    """Ours and the best peer's time of a workload: medians over the runs."""

    workload: str
    ours_us: float
    best: str
    best_us: float
    ratio: float  # the best peer's time over ours: above 1 ours is faster
    runs: int


def group_of(workload: str) -> str:
    """Name the group of a workload.

    Args:
        workload: Its name.

    Returns:
        The group, as the tables call it.

    Raises:
        ValueError: No group holds it.
    """
    for group, beginnings in GROUPS.items():
        if workload.startswith(beginnings):
            return group
    raise ValueError(f"{workload!r} is in no group of tools/docs/figures/standing.py: add one")


@cache
def races(folder: Path = REPETITIONS, published: Path = PUBLISHED) -> tuple[Race, ...]:
    """Hold ours against the best peer of each workload.

    Args:
        folder: Files of ``warpwatch peers --json``.
        published: asv's results of the card, which serve where the folder holds no file.

    Returns:
        A race for each workload that a peer was timed on, by name.
    """
    runs = [_run(path) for path in sorted(folder.glob("*.json"))] or [_suite(published)]
    ratios: dict[str, list[tuple[float, float, str, float]]] = defaultdict(list)
    for run in runs:
        times: dict[str, dict[str, float]] = defaultdict(dict)
        for one in run:
            times[one.workload][one.by] = one.us
        for workload, each in times.items():
            ours = each.pop(OURS, None)
            if ours is None or not each:
                continue
            best = min(each, key=lambda by: each[by])
            ratios[workload].append((each[best] / ours, ours, best, each[best]))
    found = []
    for workload, every in sorted(ratios.items()):
        found.append(
            Race(
                workload,
                statistics.median(ours for _, ours, _, _ in every),
                statistics.mode(best for _, _, best, _ in every),
                statistics.median(us for _, _, _, us in every),
                statistics.median(ratio for ratio, _, _, _ in every),
                len(every),
            )
        )
    return tuple(found)


def _run(path: Path) -> list[Time]:
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return [Time(one["workload"], one["by"], one["us"]) for one in rows if one["us"] is not None]


def _suite(folder: Path) -> list[Time]:
    """Times of the newest commit at which most peers were measured."""
    commits = sorted(
        (read_result(path) for path in folder.glob("*-kernels-*.json")),
        key=lambda result: result.date_ms,
        reverse=True,
    )
    best: list[Time] = []
    for result in commits:
        times = []
        for row in result.rows:
            if not row.benchmark.endswith(_TIME):
                continue
            names = (cells[0].strip("'") for cells in itertools.product(*row.params))
            for name, us in zip(names, result.values[row.offset :], strict=False):
                workload, _, by = name.partition(SEPARATOR)
                if math.isfinite(us):
                    times.append(Time(workload, by or OURS, float(us)))
        if sum(one.by != OURS for one in times) > sum(one.by != OURS for one in best):
            best = times
    return best


def _by_group() -> Iterator[tuple[str, list[Race]]]:
    grouped: dict[str, list[Race]] = defaultdict(list)
    for race in races():
        grouped[group_of(race.workload)].append(race)
    for group in GROUPS:
        if group in grouped:
            yield group, grouped[group]


def _parts() -> Iterator[tuple[str, list[Race]]]:
    """The groups, those of ``BY_HEAD_DIM`` in their parts."""
    for group, members in _by_group():
        if group not in BY_HEAD_DIM:
            yield group, members
            continue
        parts: dict[int, list[Race]] = defaultdict(list)
        for race in members:
            found = _HEAD_DIM.search(race.workload)
            parts[int(found[1]) if found else 0].append(race)
        for head_dim, part in sorted(parts.items()):
            yield f"{group}, head dim {head_dim}", part


def by_group() -> str:
    """Write the standing of each group.

    Returns:
        A table: the best peer's time over ours, as a geometric mean and the lowest of a group, or
        of a head dim.
    """
    rows = []
    for group, members in _parts():
        ratios = [race.ratio for race in members]
        peers = sorted({race.best for race in members})
        mean = statistics.geometric_mean(ratios)
        dtypes = ", ".join(sorted({_dtype(race.workload) for race in members}))
        count, lowest = str(len(members)), f"{min(ratios):.2f}"
        rows.append((group, dtypes, count, f"{mean:.2f}", lowest, ", ".join(peers)))
    head = ["kernels", "dtype", "workloads", "mean ratio", "lowest ratio", "the best peers"]
    return table(head, rows, right=[2, 3, 4])


def not_compared() -> str:
    """Name the groups that no published run compares with a peer.

    Returns:
        A sentence, in lines of a page's width.
    """
    compared = {group for group, _ in _by_group()}
    left = [group for group in GROUPS if group not in compared]
    return textwrap.fill(f"Not compared: {'; '.join(left) or 'none'}.", 110)


def _dtype(workload: str) -> str:
    found = _DTYPE.search(workload)
    return found[1] if found else "unknown"


def by_workload() -> str:
    """Write the standing of each workload.

    Returns:
        A table with the times of both.
    """
    rows = [
        (f"`{one.workload}`", f"{one.ours_us:,.1f}", one.best, f"{one.best_us:,.1f}",
         f"{one.ratio:.2f}")
        for _, members in _by_group()
        for one in members
    ]  # fmt: skip
    head = ["workload", "ours, us", "best peer", "its time, us", "its time over ours"]
    return table(head, rows, right=[1, 3, 4])


def source() -> str:
    """Say which runs the standing is of.

    Returns:
        One or two sentences.
    """
    files = sorted(REPETITIONS.glob("*.json"))
    if files:
        read = (json.loads(path.read_text(encoding="utf-8")) for path in files)
        cards = sorted({str(one.get("card", {}).get("name", "unknown")) for one in read})
        most = max(race.runs for race in races())
        of = "A row is of one" if most == 1 else f"A row is the median of at most {most} of them"
        return (
            f"The rows are of {len(files)} runs of `warpwatch peers` on {' and '.join(cards)}.\n"
            f"{of}. Their files lie in `docs/results/data/peers/`."
        )
    return (
        "The times are those of the whole suite at the newest published commit that was measured "
        "with peers,\non one NVIDIA H200. It times cuDNN, FlashAttention-2 and cuBLAS on "
        f"{len(races())} workloads."
    )


def counters() -> str:
    """Hold counters of our launches against those of a peer's.

    Returns:
        A table of ``python -m tools.kernels.speed.stalls --json``.
    """
    rows = []
    for one in json.loads(COUNTERS.read_text(encoding="utf-8")):
        workload, _, by = one["call"].partition(SEPARATOR)
        waits = sum(one["waits"].get(reason, 0.0) for reason in _WAITS)
        what = f"`{workload}`" if by else f"`{workload}`, {_launch(one['kernel'])}"
        rows.append(
            (what, by or OURS, f"{one['us']:,.1f}", f"{one['kiloclocks']:,.0f}",
             f"{one['most'] / one['kiloclocks']:.2f}", f"{one['tensor_percent']:.1f}",
             f"{one['instructions_m']:,.1f}", f"{one['special_m']:,.1f}", f"{waits:,.0f}",
             f"{one['memory_mb']:,.0f}")
        )  # fmt: skip
    head = [
        *("workload, and the launch of ours", "by", "us", "thousand clocks"),
        *("busiest over mean", "tensor cores busy, %", "instructions, M"),
        *("special functions, M", "waits for results, thousand clocks", "memory, MB"),
    ]
    return table(head, rows, right=range(2, len(head)))


def _launch(kernel: str) -> str:
    """The name of a launch of ours, without what the workload says already."""
    return kernel.removesuffix("_hopper").removeprefix("attention_").replace("_", " ")


def power() -> str:
    """Show at what power and clock calls repeat, ours and a peer's.

    Returns:
        A table of ``python -m tools.kernels.speed.power --json``.
    """
    rows = []
    for one in json.loads(POWER.read_text(encoding="utf-8")):
        workload, _, by = one["call"].partition(SEPARATOR)
        rows.append(
            (f"`{workload}`", by or OURS, f"{one['us']:,.1f}", f"{one['spread']:.1%}",
             f"{one['tflops']:,.0f}", f"{one['watts']:,.0f}", f"{one['mhz']:,.0f}",
             f"{one['watts'] * one['us'] / 1e3:,.0f}", f"{one['capped']:.0%}")
        )  # fmt: skip
    head = [
        *("workload", "by", "us", "spread", "TFLOP/s", "W", "MHz", "mJ a call"),
        "time at the power limit",
    ]
    return table(head, rows, right=range(2, len(head)))
