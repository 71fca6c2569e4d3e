"""Predicted times compared with what cards counted and timed, commit by commit.

The predictions are those that ``python -m tools.harness.bound_against_published --predictions``
wrote; the readings are the published ones. Sources of both are the same commits.
"""

from __future__ import annotations

import gzip
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tools.docs.figures.markdown import table
from tools.docs.figures.standing import group_of
from tools.root import ROOT
from warpwatch.commands.gpu.bounds import Row, rank_correlation
from warpwatch.config import metrics
from warpwatch.judge.model import thresholds
from warpwatch.judge.model.core import Verdict
from warpwatch.judge.predicted import interval
from warpwatch.judge.predicted import verdict as predicted

DATA = ROOT / "docs" / "results" / "data" / "predictions.json"
PUBLISHED = ROOT / "reports" / "published" / "h200"
# Calls below it are judged by cycles: their times differ by more between processes than by code.
SHORT_US = 20.0
MOVED, QUIET = 0.03, 0.015


@dataclass(frozen=True)
class Reading:
    """One workload at a commit: predicted and counted clocks, predicted and measured microseconds,
    the counted share of clocks in which tensor cores were at work, percent, and the metrics that
    explain a prediction. ``at`` is the commit's date, ``call`` stands for its code and its
    launches."""

    workload: str
    at: int
    predicted: float
    predicted_us: float
    counted: float
    us: float
    pipe: float
    call: str
    sure: bool
    values: Mapping[str, float]


@dataclass(frozen=True)
class Change:
    """Neighbouring readings of one workload whose code differs: logarithms of later over
    earlier, of the predicted time and clocks, and of the counted clocks. ``truth`` is of the time,
    of short calls of the counted clocks. ``weighed`` is the verdict on the call, metrics that its
    time leaves open included."""

    workload: str
    at: int
    predicted: float
    clocks: float
    counted: float
    truth: float
    sure: bool
    weighed: Verdict

    @property
    def verdict(self) -> int:
        """1 where it is predicted to be slower, -1 faster, 0 where that is not sure."""
        return interval.verdict(math.exp(self.predicted)) if self.sure else 0

    @property
    def is_covered(self) -> bool:
        """Whether the interval of the prediction holds the truth."""
        low, high = interval.of_ratio(math.exp(self.predicted))
        return low <= math.exp(self.truth) <= high


@cache
def readings(data: Path = DATA) -> tuple[Reading, ...]:
    """Read predictions and what was measured of the same.

    Args:
        data: The predictions.

    Returns:
        Those that have both.
    """
    found = []
    measured: dict[str, tuple[int, dict[str, dict[str, float]]]] = {}
    for file in sorted(PUBLISHED.glob("*-kernels-*.json")):
        commit, at, values = _measured(file)
        measured[commit] = at, values
    document = json.loads(data.read_text(encoding="utf-8"))
    for name, call in document["readings"].items():
        commit, workload = name.split(" ", 1)
        said = document["calls"][call]
        at, values = measured.get(commit, (0, {}))
        cells = values.get(workload, {})
        if "sm_cycles" in cells and "latency_cold" in cells:
            found.append(
                Reading(
                    workload,
                    at,
                    said["clocks"],
                    said["us"],
                    cells["sm_cycles"],
                    cells["latency_cold"],
                    cells["tensor_pipe"],
                    call,
                    said["sure"],
                    said["values"],
                )
            )
    return tuple(sorted(found, key=lambda one: (one.workload, one.at)))


def _measured(file: Path) -> tuple[str, int, dict[str, dict[str, float]]]:
    document = json.loads(file.read_text(encoding="utf-8"))
    found: dict[str, dict[str, float]] = defaultdict(dict)
    # No series holds counters of an earlier method, but clocks of it are clocks: those are kept.
    kept = PUBLISHED.parent / "evidence" / f"gpu-{document['commit_hash'][:12]}.json.gz"
    with gzip.open(kept, "rt", encoding="utf-8") as evidence:
        for one in json.load(evidence)["counted"]:
            for counter in ("sm_cycles", "tensor_pipe"):
                if samples := one["samples"].get(counter):
                    found[one["workload"]][counter] = statistics.median(samples)
    for benchmark, row in document["results"].items():
        metric = benchmark.partition("track_")[2]
        cells = dict(zip(document["result_columns"], row, strict=False))
        is_ours = not benchmark.startswith("peers.") and bool(cells["result"])
        if metric == "latency_cold" and is_ours:
            for key, value in zip(cells["params"][0], cells["result"], strict=True):
                if value and math.isfinite(value):
                    found[key.strip("'")][metric] = value
    return document["commit_hash"][:8], document["date"], found


@cache
def changes(data: Path = DATA) -> tuple[Change, ...]:
    """Pair neighbouring readings whose code differs.

    Args:
        data: The predictions.

    Returns:
        The pairs in the order of the history.
    """
    found = []
    for one, other in zip(readings(data), readings(data)[1:], strict=False):
        if one.workload == other.workload and one.call != other.call:
            counted = math.log(other.counted / one.counted)
            is_long = min(one.us, other.us) >= SHORT_US
            found.append(
                Change(
                    one.workload,
                    other.at,
                    math.log(other.predicted_us / one.predicted_us),
                    math.log(other.predicted / one.predicted),
                    counted,
                    math.log(other.us / one.us) if is_long else counted,
                    one.sure and other.sure,
                    _weighed(one, other),
                )
            )
    return tuple(sorted(found, key=lambda one: one.at))


def _weighed(one: Reading, other: Reading) -> Verdict:
    """The verdict on the call, as a comparison without a GPU gives it."""
    limits = thresholds.load()
    worse, better = dict[str, float](), dict[str, float]()
    for metric in metrics.COMPILED:
        old, new = (side.values.get(metric.name, math.nan) for side in (one, other))
        if metric.role == "verdict" and old != new and limits.of(metric.name).passed(old, new):
            is_worse = (new > old) == (metric.better == "lower")
            (worse if is_worse else better)[metric.name] = old
    times = one.predicted_us, other.predicted_us
    time = predicted.Change(*times, *interval.of_ratio(times[1] / times[0]), "", "", True)
    return predicted.weigh(time if one.sure and other.sure else None, worse, better)


def halves(data: Path = DATA) -> tuple[list[Change], list[Change]]:
    """Part the changes at the middle commit.

    Args:
        data: The predictions.

    Returns:
        Those before it, on which the interval is calibrated, and the others.
    """
    commits = sorted({one.at for one in changes(data)})
    middle = commits[len(commits) // 2]
    every = changes(data)
    return [one for one in every if one.at < middle], [one for one in every if one.at >= middle]


def summary() -> str:
    """Say how near predictions are.

    Returns:
        Some sentences.
    """
    pairs = readings()
    errors = sorted(abs(one.predicted / one.counted - 1) for one in pairs)
    near = sum(one <= 0.2 for one in errors)
    return (
        f"There are {len(pairs):,} pairs of a workload and a commit. "
        f"The median error of the clocks is {error()}.\n"
        f"{100 * near / len(pairs):.0f} % of the predictions are within 20 % of the counter.\n"
        "Tensor cores are as long at work as was counted, so predicted clocks give a "
        "utilization, too.\n"
        f"Its rank correlation with the counter is {rank_correlation(utilization()):.2f}."
    )


def utilization() -> list[Row]:
    """List the utilization of tensor cores by predicted clocks and as counted.

    Returns:
        Percent, of each workload at a commit.
    """
    return [
        Row(one.workload, one.pipe * one.counted / one.predicted, one.pipe) for one in readings()
    ]


def error() -> str:
    """State the median error.

    Returns:
        Percent of the counted clocks.
    """
    errors = [abs(one.predicted / one.counted - 1) for one in readings()]
    return f"{100 * statistics.median(errors):.1f} %"


def by_group() -> str:
    """Write how near predictions are for each group of kernels.

    Returns:
        A table of predicted over counted clocks.
    """
    grouped: dict[str, list[float]] = defaultdict(list)
    for one in readings():
        grouped[group_of(one.workload)].append(one.predicted / one.counted)
    cells = [
        (group, str(len(found)), *(f"{one:.2f}" for one in _spread(found)))
        for group, found in sorted(
            grouped.items(), key=lambda one: abs(math.log(statistics.median(one[1])))
        )
    ]
    head = ["kernels", "pairs", "tenth", "median", "ninetieth"]
    return table(head, cells, right=[1, 2, 3, 4])


def _spread(found: list[float]) -> tuple[float, float, float]:
    ordered = sorted(found)
    last = len(ordered) - 1
    return ordered[round(last * 0.1)], statistics.median(ordered), ordered[round(last * 0.9)]


def verdicts(data: Path = DATA) -> str:
    """Count what the predictions say of changes.

    Args:
        data: The predictions.

    Returns:
        A table of the changes in the first and the second half of the history.
    """
    earlier, later = halves(data)
    rows = []
    for name, part in (("first half", earlier), ("second half", later), ("all", [*changes(data)])):
        for kind, moved in (
            ("3 % and more", [one for one in part if abs(one.truth) >= math.log1p(MOVED)]),
            (
                "3 % and more of the clocks",
                [x for x in part if abs(x.counted) >= math.log1p(MOVED)],
            ),
        ):
            by = "truth" if kind == "3 % and more" else "counted"
            right = sum(one.verdict * getattr(one, by) > 0 for one in moved)
            wrong = sum(one.verdict * getattr(one, by) < 0 for one in moved)
            said = "predicted" if by == "truth" else "clocks"
            errors = [abs(getattr(one, said) - getattr(one, by)) for one in moved] or [0.0]
            rows.append(
                (
                    f"{name}, {kind}",
                    str(len(moved)),
                    str(right),
                    str(wrong),
                    str(len(moved) - right - wrong),
                    f"{100 * statistics.median(errors):.1f}",
                )
            )
    head = ["changes", "number", "right", "wrong", "not sure", "median error, points"]
    return table(head, rows, right=[1, 2, 3, 4, 5])


def unsure(data: Path = DATA) -> str:
    """Say why changes are not sure, and how many of them could be.

    Args:
        data: The predictions.

    Returns:
        Some sentences.
    """
    moved = [one for one in changes(data) if abs(one.truth) >= math.log1p(MOVED)]
    open_ = [one for one in moved if one.verdict == 0]
    kernels = [one for one in open_ if abs(one.counted) >= math.log1p(QUIET)]
    known = [one for one in kernels if one.sure]
    seen = [one for one in known if abs(one.predicted) >= math.log1p(QUIET)]
    near = sum(one.predicted * one.truth > 0 for one in seen)
    agreed = [one for one in moved if one.counted * one.truth > 0]
    agreed = [one for one in agreed if abs(one.counted) >= math.log1p(MOVED)]
    right = sum(one.verdict * one.truth > 0 for one in agreed)
    return (
        f"Of the {len(open_)} changes that are not sure, {len(open_) - len(kernels)} have clocks "
        "that moved by less than 1.5 %. No clocks can win those.\n"
        f"Of the other {len(kernels)}, {len(kernels) - len(known)} depend on data. "
        f"In {len(known) - len(seen)} the prediction moves by less than 1.5 %.\n"
        f"In {near} it moves the right way, and in {len(seen) - near} the wrong way, but not by "
        "enough for a verdict.\n"
        f"Of the {len(agreed)} changes of 3 % that both instruments agree on, {right} are right."
    )


def quiet(data: Path = DATA) -> str:
    """Say what the predictions say of code that changed and times that did not.

    Args:
        data: The predictions.

    Returns:
        Some sentences.
    """
    still = [one for one in changes(data) if abs(one.truth) < math.log1p(QUIET)]
    by_time = sum(one.verdict != 0 for one in still)
    others = sum(one.weighed in ("regressed", "improved") and not one.verdict for one in still)
    asked = sum(one.weighed in ("mixed", "inconclusive") for one in still)
    return (
        f"In {len(still)} pairs the code changed and the time moved by less than 1.5 %. "
        f"{by_time} of them have a verdict by their predicted time.\n"
        f"{others} others have one by their other metrics, and {asked} are mixed or inconclusive."
    )
