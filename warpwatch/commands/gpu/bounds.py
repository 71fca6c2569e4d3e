"""``bounds``: the compiled bound on utilization held against what a GPU's counters read."""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from warpwatch.config import targets
from warpwatch.config.package import workloads as load_workloads
from warpwatch.config.targets import Target

SCHEMA_VERSION = 1
SIZE, MARGIN = 420, 50


@dataclass(frozen=True)
class Row:
    """Percent of the cycles the tensor cores are active: allowed by the bound, and measured."""

    workload: str
    bound: float
    measured: float

    @property
    def slack(self) -> float:
        return self.bound - self.measured


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "measured", nargs="+", metavar="FILE", help="written by: peers --counters --json FILE"
    )
    parser.add_argument("--target", default="sm_90", help="compile for this target (sm_90)")
    parser.add_argument("--json", metavar="FILE", help="write the rows to FILE; - is stdout")
    parser.add_argument("--plot", metavar="FILE", help="write the scatter as SVG")


def main(args: argparse.Namespace) -> int:
    target = targets.get(args.target)
    measured = {name: pipe for file in args.measured for name, pipe in read(Path(file)).items()}
    rows = []
    for name, pipe in measured.items():
        bound = bound_of(name, target)
        print(f"{name}: bound {bound:.1f} %, measured {pipe:.1f} %", file=sys.stderr, flush=True)
        if not math.isnan(bound):
            rows.append(Row(name, bound, pipe))
    if not rows:
        print("no workload has both a bound and a measured utilization", file=sys.stderr)
        return 3
    if args.plot:
        Path(args.plot).write_text(scatter(rows), encoding="utf-8")
    if args.json:
        text = json.dumps({"schema_version": SCHEMA_VERSION, "rows": [asdict(row) for row in rows]})
        if args.json == "-":
            print(text)
        else:
            Path(args.json).write_text(text + "\n", encoding="utf-8")
    if args.json != "-":
        print("\n".join(lines(rows)))
    return 0


def read(file: Path) -> dict[str, float]:
    """Our kernels' tensor-core activity by workload, from a table of ``peers``."""
    try:
        document: Any = json.loads(file.read_text(encoding="utf-8"))
        rows = document["rows"]
        return {
            row["workload"]: float(row["tensor_pipe"])
            for row in rows
            if row["by"] == "ours" and row["tensor_pipe"] is not None
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{file}: expected a file of `peers --counters --json`: {type(error).__name__}: {error}"
        ) from None


def bound_of(name: str, target: Target) -> float:
    """NaN where the workload does not compile or has no bound."""
    from warpwatch.instruments import compiled

    values = compiled.measure(load_workloads().get(name), target).values
    return values.get("bound_utilization", math.nan)


def rank_correlation(rows: Sequence[Row]) -> float:
    """Spearman's: whether the bound puts the workloads in the measured order."""
    from scipy.stats import spearmanr

    if len(rows) < 3:
        return math.nan
    return float(spearmanr([row.bound for row in rows], [row.measured for row in rows]).statistic)


def lines(rows: Sequence[Row]) -> list[str]:
    """The table, the largest slack first, and what it sums up to."""
    ranked = sorted(rows, key=lambda row: -row.slack)
    below = [row.workload for row in rows if row.slack < 0]
    return [
        f"{'workload':<48}{'bound %':>9}{'measured %':>12}{'slack':>8}",
        *(f"{r.workload:<48}{r.bound:>9.1f}{r.measured:>12.1f}{r.slack:>8.1f}" for r in ranked),
        "",
        f"median slack {statistics.median(row.slack for row in rows):.1f} points, rank correlation "
        f"{rank_correlation(rows):.2f}, bound below the measured: {', '.join(below) or 'none'}",
    ]


def scatter(rows: Sequence[Row]) -> str:
    """Measured over bound; on the diagonal a kernel does all that its code allows."""

    def at(value: float) -> float:
        return MARGIN + (SIZE - 2 * MARGIN) * value / 100

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE} {SIZE}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect x="{at(0)}" y="{SIZE - at(100)}" width="{at(100) - at(0)}" '
        f'height="{at(100) - at(0)}" fill="none" stroke="#999"/>',
        f'<line x1="{at(0)}" y1="{SIZE - at(0)}" x2="{at(100)}" y2="{SIZE - at(100)}" '
        'stroke="#999"/>',
        f'<text x="{at(50)}" y="{SIZE - 12}" text-anchor="middle">compiled bound, %</text>',
        f'<text x="14" y="{SIZE - at(50)}" text-anchor="middle" '
        f'transform="rotate(-90 14 {SIZE - at(50)})">measured tensor-pipe activity, %</text>',
    ]
    for tick in (0, 25, 50, 75, 100):
        parts.append(
            f'<text x="{at(tick)}" y="{SIZE - at(0) + 14}" text-anchor="middle">{tick}</text>'
        )
        parts.append(
            f'<text x="{at(0) - 6}" y="{SIZE - at(tick) + 4}" text-anchor="end">{tick}</text>'
        )
    for row in rows:
        parts.append(
            f'<circle cx="{at(row.bound):.1f}" cy="{SIZE - at(row.measured):.1f}" r="4" '
            f'fill="#47a"><title>{row.workload}</title></circle>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"
