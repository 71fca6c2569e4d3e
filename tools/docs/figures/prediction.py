"""The compiled bound on utilization compared with the counters of published commits."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from functools import cache

from tools.docs.figures.markdown import table
from tools.docs.figures.standing import group_of
from tools.root import ROOT
from warpwatch.commands.gpu.bounds import Row, rank_correlation

FILE = ROOT / "docs" / "results" / "data" / "bound.json"


@cache
def _rows() -> tuple[Row, ...]:
    """A workload's name begins with the commit that it was measured at."""
    rows = json.loads(FILE.read_text(encoding="utf-8"))["rows"]
    return tuple(Row(one["workload"], one["bound"], one["measured"]) for one in rows)


def summary() -> str:
    """Say how near the bound is.

    Returns:
        Four sentences.
    """
    rows = _rows()
    commits = {row.workload.split()[0] for row in rows}
    below = sum(row.slack < 0 for row in rows)
    return (
        f"There are {len(rows):,} pairs of workload and commit, of {len(commits)} commits. "
        f"The measured value is above the bound in {below} of them.\n"
        f"The median slack is {statistics.median(row.slack for row in rows):.1f} points. "
        f"The rank correlation is {rank_correlation(rows):.2f}."
    )


def by_group() -> str:
    """Write the slack of each group of kernels.

    Returns:
        A table of points between the bound and the measured utilization.
    """
    grouped: dict[str, list[float]] = defaultdict(list)
    for row in _rows():
        grouped[group_of(row.workload.split()[1])].append(row.slack)
    cells = [
        (group, str(len(all_of)), *(f"{one:.1f}" for one in _spread(all_of)))
        for group, all_of in sorted(grouped.items(), key=lambda one: statistics.median(one[1]))
    ]
    head = ["kernels", "pairs", "least slack", "median", "most"]
    return table(head, cells, right=[1, 2, 3, 4])


def _spread(slacks: list[float]) -> tuple[float, float, float]:
    return min(slacks), statistics.median(slacks), max(slacks)
