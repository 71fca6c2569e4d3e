"""What the repetitions of the peers' groups say together: medians of their ratios.

python -m tools.evidence.peers_of_all FOLDER
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from tools.evidence.steps import GROUPS, REPETITIONS
from warpwatch.instruments.peers.registry import OURS


def ratios(folder: Path, group: str) -> tuple[dict[str, list[float]], int]:
    """The best peer's time over ours by workload, and of how many repetitions."""
    found: dict[str, list[float]] = defaultdict(list)
    count = 0
    for number in range(1, REPETITIONS + 1):
        path = folder / f"peers-{group}-{number}" / "peers.json"
        if not path.exists():
            continue
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
        mine = [row for row in rows if row["by"] == OURS and row["versus_best"]]
        for row in mine:
            found[row["workload"]].append(row["versus_best"])
        count += bool(mine)
    return found, count


def lines(folder: Path) -> list[str]:
    """A line a group that has been measured."""
    told = []
    for group, (_, _, goal) in GROUPS.items():
        found, count = ratios(folder, group)
        if not found:
            continue
        medians = {name: statistics.median(each) for name, each in found.items()}
        least = min(medians, key=lambda name: medians[name])
        fewer = sum(len(each) < count for each in found.values())
        told.append(
            f"{group:<16} best peer's time over ours, medians of {count}: geometric mean "
            f"{statistics.geometric_mean(medians.values()):.3f} of {len(medians)}, least "
            f"{medians[least]:.3f} ({least}); goal {goal}"
            + (f"; {fewer} in fewer repetitions" if fewer else "")
        )
    return told


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.evidence.peers_of_all",
        description="what the repetitions of the peers' groups say together",
    )
    parser.add_argument("folder", type=Path, help="of python -m tools.evidence --out")
    print("\n".join(lines(parser.parse_args(given).folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
