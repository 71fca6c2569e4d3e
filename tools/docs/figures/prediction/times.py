"""Predicted times compared with what cards counted and timed, commit by commit.

The predictions are those that ``python -m tools.harness.bound_against_published --predictions``
wrote; the readings are the published ones. Sources of both are the same commits.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tools.docs.figures.markdown import table
from tools.docs.figures.standing import group_of
from tools.root import ROOT
from warpwatch.judge.predicted import interval

DATA = ROOT / "docs" / "results" / "data" / "predictions.json"
PUBLISHED = ROOT / "reports" / "published" / "h200"
# Calls below it are judged by cycles: their times differ by more between processes than by code.
SHORT_US = 20.0
MOVED, QUIET = 0.03, 0.015


@dataclass(frozen=True)
class Reading:
    """One workload at a commit: predicted and counted clocks, and the time in microseconds.
    ``at`` is the commit's date, ``call`` stands for its code and its launches."""

    workload: str
    at: int
    predicted: float
    counted: float
    us: float
    call: str
    sure: bool


@dataclass(frozen=True)
class Change:
    """Neighbouring readings of one workload whose code differs: logarithms of later over
    earlier. ``truth`` is of the time, of short calls of the counted clocks."""

    workload: str
    at: int
    predicted: float
    counted: float
    truth: float
    sure: bool

    @property
    def verdict(self) -> int:
        """1 where it is predicted to be slower, -1 faster, 0 where that is not sure."""
        return interval.verdict(math.exp(self.predicted)) if self.sure else 0

    @property
    def is_covered(self) -> bool:
        """Whether the interval of the prediction holds what was counted."""
        low, high = interval.of_ratio(math.exp(self.predicted))
        return low <= math.exp(self.counted) <= high


@cache
def readings() -> tuple[Reading, ...]:
    """Read predictions and what was measured of the same.

    Returns:
        Those that have both.
    """
    found = []
    measured: dict[str, tuple[int, dict[str, dict[str, float]]]] = {}
    for file in sorted(PUBLISHED.glob("*-kernels-*.json")):
        commit, at, values = _measured(file)
        measured[commit] = at, values
    for name, (clocks, sure, call) in json.loads(DATA.read_text(encoding="utf-8")).items():
        commit, workload = name.split(" ", 1)
        at, values = measured.get(commit, (0, {}))
        cells = values.get(workload, {})
        if "sm_cycles" in cells and "latency_cold" in cells:
            counted, us = cells["sm_cycles"], cells["latency_cold"]
            found.append(Reading(workload, at, clocks, counted, us, call, sure))
    return tuple(sorted(found, key=lambda one: (one.workload, one.at)))


def _measured(file: Path) -> tuple[str, int, dict[str, dict[str, float]]]:
    document = json.loads(file.read_text(encoding="utf-8"))
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for benchmark, row in document["results"].items():
        metric = benchmark.partition("track_")[2]
        cells = dict(zip(document["result_columns"], row, strict=False))
        is_ours = not benchmark.startswith("peers.") and bool(cells["result"])
        if metric in ("sm_cycles", "latency_cold") and is_ours:
            for key, value in zip(cells["params"][0], cells["result"], strict=True):
                if value and math.isfinite(value):
                    found[key.strip("'")][metric] = value
    return document["commit_hash"][:8], document["date"], found


@cache
def changes() -> tuple[Change, ...]:
    """Pair neighbouring readings whose code differs.

    Returns:
        The pairs in the order of the history.
    """
    found = []
    for one, other in zip(readings(), readings()[1:], strict=False):
        if one.workload == other.workload and one.call != other.call:
            counted = math.log(other.counted / one.counted)
            is_long = min(one.us, other.us) >= SHORT_US
            found.append(
                Change(
                    one.workload,
                    other.at,
                    math.log(other.predicted / one.predicted),
                    counted,
                    math.log(other.us / one.us) if is_long else counted,
                    one.sure and other.sure,
                )
            )
    return tuple(sorted(found, key=lambda one: one.at))


def halves() -> tuple[list[Change], list[Change]]:
    """Part the changes at the middle commit.

    Returns:
        Those before it, on which the interval is calibrated, and the others.
    """
    commits = sorted({one.at for one in changes()})
    middle = commits[len(commits) // 2]
    every = changes()
    return [one for one in every if one.at < middle], [one for one in every if one.at >= middle]


def calibrated() -> float:
    """Calibrate the interval on the changes of the first half (split conformal prediction).

    Returns:
        The width of an interval of 90 % by the measure of :mod:`.interval`.
    """
    earlier = [one for one in halves()[0] if one.sure]
    scores = sorted(
        abs(one.predicted - one.counted) / interval.scale(math.exp(one.predicted))
        for one in earlier
    )
    place = math.ceil(interval.CONFIDENCE * (len(scores) + 1)) - 1
    return scores[min(place, len(scores) - 1)]


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
        f"{100 * near / len(pairs):.0f} % of the predictions are within 20 % of the counter."
    )


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


def verdicts() -> str:
    """Count what the predictions say of changes.

    Returns:
        A table of the changes in the first and the second half of the history.
    """
    earlier, later = halves()
    rows = []
    for name, part in (("first half", earlier), ("second half", later), ("all", [*changes()])):
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
            errors = [abs(one.predicted - getattr(one, by)) for one in moved] or [0.0]
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


def quiet() -> str:
    """Say what the predictions say of code that changed and times that did not.

    Returns:
        Some sentences.
    """
    still = [one for one in changes() if abs(one.truth) < math.log1p(QUIET)]
    alarms = sum(one.verdict != 0 for one in still)
    return (
        f"In {len(still)} pairs the code changed and the time moved by less than 1.5 %. "
        f"{alarms} of them have a verdict."
    )


def held() -> str:
    """Say how honest the interval is.

    Returns:
        Some sentences.
    """
    later: Sequence[Change] = [one for one in halves()[1] if one.sure]
    share = statistics.fmean(one.is_covered for one in later)
    widths = [interval.of_ratio(math.exp(one.predicted)) for one in later]
    half = statistics.median((high / low) ** 0.5 - 1 for low, high in widths)
    return (
        "The interval is calibrated on the first half of the history, "
        f"for {100 * interval.CONFIDENCE:.0f} %.\n"
        f"In the second half it holds {100 * share:.0f} % of the counted changes. "
        f"Its half-width is {100 * half:.1f} % in the median."
    )
