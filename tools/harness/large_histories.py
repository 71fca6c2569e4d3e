"""Makes the large histories on which the report's figures are measured.

    python -m tools.harness.large_histories OUT middling
    python -m tools.harness.large_histories OUT large
    python -m tools.harness.large_histories OUT wide

*middling* is 1,433 files, 273 MB and 3,258 series; *large* is 1,406 files, 555 MB and 9,660 series;
*wide* is 30,000 series of few commits, for the time that the index takes to open.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.reports.trees import large_tree

HISTORIES: dict[str, dict[str, Any]] = {
    "middling": {
        "commits": 717,
        "homes": [("rig", "py3.10"), ("rig", "py3.11")],
        "benchmarks": 170,
        "params": [5, 2],
        "files": 1433,
        "series_a_home": 1629,
        "samples": 4,
    },
    "large": {
        "commits": 469,
        "homes": [("rig", "py3.10"), ("rig", "py3.11"), ("big", "py3.11")],
        "benchmarks": 330,
        "params": [5, 2],
        "files": 1406,
        "series_a_home": 3220,
        "samples": 4,
    },
    "wide": {
        "commits": 20,
        "homes": [("rig", "py3.10"), ("rig", "py3.11"), ("big", "py3.11")],
        "benchmarks": 1000,
        "params": [5, 2],
    },
}


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.harness.large_histories",
        description="make a large history of asv results with its git repository",
    )
    parser.add_argument("out", type=Path, help="a folder, made where there is none")
    parser.add_argument("which", choices=tuple(HISTORIES))
    args = parser.parse_args(given)
    large_tree(args.out, **HISTORIES[args.which])
    return 0


if __name__ == "__main__":
    sys.exit(main())
