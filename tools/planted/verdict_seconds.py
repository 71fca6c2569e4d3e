"""How long a verdict on a GPU takes, from the start of the command, with warm compiler caches.

    python -m tools.planted.verdict_seconds [--only NAME ...]

Plants the commits on one branch, by default four subtle ones, compiles all of them, and times one
``warpwatch compare`` of their workloads. Exits 1 where a defect was not found.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools.planted import on_gpu
from tools.planted.plants import Branch
from warpwatch.instruments import presence

FOUR = ("start-offset-lost", "fewer-parts", "fewer-rows-together", "scales-asked-late")


def main() -> int:
    """Exit 0 where every defect was found, 2 without a GPU."""
    parser = argparse.ArgumentParser(prog="python -m tools.planted.verdict_seconds")
    parser.add_argument("--only", action="append", default=[], metavar="NAME",
                        help="these commits (default: four subtle ones)")  # fmt: skip
    args = parser.parse_args()
    if not presence.has_gpu():
        parser.error("no GPU here: a verdict on a GPU needs one")
    plants = tuple(one for branch in on_gpu.chosen(args.only or FOUR) for one in branch.plants)
    branch = Branch("verdict", True, plants)
    with tempfile.TemporaryDirectory(prefix="verdict-") as folder:
        repository = Path(folder) / "repository"
        on_gpu.plant([branch], repository)
        on_gpu.compile_all([branch], repository, Path(folder) / "warm")
        command = [sys.executable, "-m", "warpwatch", "compare", "base", branch.name, "--json"]
        for name in branch.workloads:
            command += ["--workload", name]
        began = time.monotonic()
        done = subprocess.run(
            [*command, "--target", "sm_90"],
            cwd=repository,
            stdout=subprocess.PIPE,
            text=True,
            env=on_gpu.beside(repository),
            timeout=900,
        )
        seconds = time.monotonic() - began
    rows = on_gpu.told(branch, json.loads(done.stdout), seconds)
    for row in rows:
        print(row.line)
    found = sum(row.right for row in rows)
    print(f"{len(rows)} workloads: a verdict in {seconds:.0f} s, {found} as planted")
    return 0 if found == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
