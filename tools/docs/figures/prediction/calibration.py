"""How honest the interval of a predicted change is, and what a narrower one would do."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from tools.docs.figures.markdown import table
from tools.docs.figures.standing import group_of
from warpwatch.judge.predicted import interval

from .times import DATA, MOVED, QUIET, Change, halves


def calibrated(data: Path = DATA) -> float:
    """Calibrate the interval on the changes of the first half (split conformal prediction).

    Args:
        data: The predictions.

    Returns:
        The width of an interval of 90 % by the measure of :mod:`.interval`.
    """
    earlier = [one for one in halves(data)[0] if one.sure]
    scores = sorted(
        abs(one.predicted - one.truth) / interval.scale(math.exp(one.predicted)) for one in earlier
    )
    place = math.ceil(interval.CONFIDENCE * (len(scores) + 1)) - 1
    return scores[min(place, len(scores) - 1)]


def held(data: Path = DATA) -> str:
    """Say how honest the interval is.

    Args:
        data: The predictions.

    Returns:
        Some sentences.
    """
    later: Sequence[Change] = [one for one in halves(data)[1] if one.sure]
    share = statistics.fmean(one.is_covered for one in later)
    widths = [interval.of_ratio(math.exp(one.predicted)) for one in later]
    half = statistics.median((high / low) ** 0.5 - 1 for low, high in widths)
    return (
        "The interval is calibrated on the first half of the history, "
        f"for {100 * interval.CONFIDENCE:.0f} %.\n"
        f"In the second half it holds {100 * share:.0f} % of the changes. "
        f"Its half-width is {100 * half:.1f} % in the median."
    )


def held_by_group(data: Path = DATA) -> str:
    """Write how honest the interval is for each group of kernels.

    Args:
        data: The predictions.

    Returns:
        A table of the second half.
    """
    grouped: dict[str, list[bool]] = defaultdict(list)
    for one in halves(data)[1]:
        if one.sure:
            grouped[group_of(one.workload)].append(one.is_covered)
    cells = [
        (group, str(len(found)), f"{100 * statistics.fmean(found):.0f} %")
        for group, found in sorted(grouped.items(), key=lambda one: -len(one[1]))
    ]
    return table(["kernels", "changes", "held"], cells, right=[1, 2])


def narrower(data: Path = DATA) -> str:
    """Say what verdicts on smaller predicted changes would be.

    Args:
        data: The predictions.

    Returns:
        Some sentences about the first half, by which the interval was chosen.
    """
    known = [one for one in halves(data)[0] if one.sure and not one.verdict]
    small = [one for one in known if abs(one.predicted) >= math.log1p(MOVED)]
    moved = [one for one in small if abs(one.truth) >= math.log1p(MOVED)]
    right = sum(one.predicted * one.truth > 0 for one in moved)
    still = sum(abs(one.truth) < math.log1p(QUIET) for one in small)
    smaller = [one for one in known if math.log1p(QUIET) <= abs(one.predicted) < math.log1p(MOVED)]
    lost = sum(abs(one.truth) < math.log1p(QUIET) for one in smaller)
    return (
        f"In the first half, {len(small)} predictions of 3 % and more give no verdict.\n"
        f"{right} of them would be right, {len(moved) - right} wrong, "
        f"and in {still} the time did not move.\n"
        f"In {lost} of the {len(smaller)} predictions from 1.5 to 3 % it did not move either."
    )
