"""What the repetitions of the peers' groups say together: medians of their ratios.

python -m tests.evidence_on_gpu.peers_of_all FOLDER
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path

from tests.evidence_on_gpu.steps import GROUPS, REPETITIONS
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


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("expected one FOLDER of python -m tests.evidence_on_gpu")
    print("\n".join(lines(Path(sys.argv[1]))))
