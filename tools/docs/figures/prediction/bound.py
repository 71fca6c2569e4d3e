"""The compiled bound on utilization compared with the counters of published commits.

The pairs are read from the plot that ``python -m tools.harness.bound_against_published`` drew.
A pixel of it is 0.3 points, and it is drawn to a tenth of one.
"""

from __future__ import annotations

import statistics
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from functools import cache

from tools.docs.figures.markdown import table
from tools.docs.figures.standing import group_of
from tools.root import ROOT
from warpwatch.commands.gpu.bounds import MARGIN, SIZE, Row, rank_correlation

PLOT = ROOT / "docs" / "bound-against-measured.svg"
_SVG = "{http://www.w3.org/2000/svg}"
_DRAWN = 0.04  # points: both ends of a slack are rounded


@cache
def rows() -> tuple[Row, ...]:
    """Read the pairs of the plot.

    Returns:
        Bound and measured utilization of each workload at a commit.
    """
    return read(ElementTree.parse(PLOT).getroot())


def read(plot: ElementTree.Element) -> tuple[Row, ...]:
    """Read a plot's pairs.

    Args:
        plot: The SVG.

    Returns:
        Bound and measured utilization of each point.
    """
    return tuple(
        Row(
            one.findtext(f"{_SVG}title") or "",
            _value(float(one.attrib["cx"])),
            _value(SIZE - float(one.attrib["cy"])),
        )
        for one in plot.iter(f"{_SVG}circle")
    )


def _value(at: float) -> float:
    return 100 * (at - MARGIN) / (SIZE - 2 * MARGIN)


def summary() -> str:
    """Say how near the bound is.

    Returns:
        Four sentences.
    """
    below = sum(row.slack < -_DRAWN for row in rows())
    return (
        f"There are {len(rows()):,} pairs of a workload and a commit. "
        f"The measured value is above the bound in {below} of them.\n"
        f"The median slack is {statistics.median(row.slack for row in rows()):.1f} points. "
        f"The rank correlation is {rank_correlation(rows()):.2f}."
    )


def by_group() -> str:
    """Write the slack of each group of kernels.

    Returns:
        A table of points between the bound and the measured utilization.
    """
    grouped: dict[str, list[float]] = defaultdict(list)
    for row in rows():
        grouped[group_of(row.workload)].append(row.slack)
    cells = [
        (group, str(len(slacks)), *(f"{one:.1f}" for one in _spread(slacks)))
        for group, slacks in sorted(grouped.items(), key=lambda one: statistics.median(one[1]))
    ]
    head = ["kernels", "pairs", "least slack", "median", "most"]
    return table(head, cells, right=[1, 2, 3, 4])


def _spread(slacks: list[float]) -> tuple[float, float, float]:
    return max(0.0, min(slacks)), statistics.median(slacks), max(slacks)
