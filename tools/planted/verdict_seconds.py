"""How long a verdict on a GPU takes, from the start of the command, with warm compiler caches.

    python -m tools.planted.verdict_seconds [--only NAME ...] [--unchanged]

Plants the commits on one branch, by default four subtle ones, compiles all of them, and times one
``warpwatch compare`` of their workloads. ``--unchanged`` adds sixteen whose code the four leave as
it is. Exits 1 where a defect was not found.
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
from warpwatch.config.package import CACHE_VARIABLE
from warpwatch.instruments import presence

FOUR = ("start-offset-lost", "fewer-parts", "fewer-rows-together", "scales-asked-late")

# The verdict says of how many of them the calls were equal.
UNCHANGED = (
    "sdpa-fp16-B12-S256-H64-D64",
    "attention-fp16-B4-S2048-H8-D64",
    "attention-bf16-B4-S4096-H16-D128",
    "attention-bf16-B4-S4096-H16-D128-causal",
    "attention-bf16-B4-S4096-H32-D64-causal",
    "attention-bf16-B4-S4096-H8-D256-causal",
    "attention-bf16-B1-S8192-H32-G8-D128-causal",
    "attention-fp16-B2-S512-KV4096-H16-D128-causal",
    "attention-fp8-B4-S4096-H16-D128-causal",
    "attention-backward-bf16-B4-S4096-H16-D128-causal",
    "attention-kvcache-bf16-B16-S1-KV4096-H32-G8-D128-page64-causal",
    "matmul-fp16-1024x1024x1024",
    "matmul-fp16-2048x2048x2048-bias-gelu",
    "matmul-fp32-2048x2048x2048-tf32",
    "matmul-fp8-4096x7168x2048-nt-blocks",
    "matmul-grouped-bf16-8192x14336x4096-G8",
)


def main() -> int:
    """Exit 0 where every defect was found, 2 without a GPU."""
    parser = argparse.ArgumentParser(prog="python -m tools.planted.verdict_seconds")
    parser.add_argument("--only", action="append", default=[], metavar="NAME",
                        help="these commits (default: four subtle ones)")  # fmt: skip
    parser.add_argument("--unchanged", action="store_true", help="sixteen workloads more")
    args = parser.parse_args()
    if not presence.has_gpu():
        parser.error("no GPU here: a verdict on a GPU needs one")
    plants = tuple(one for branch in on_gpu.chosen(args.only or FOUR) for one in branch.plants)
    branch = Branch("verdict", True, plants)
    with tempfile.TemporaryDirectory(prefix="verdict-") as folder:
        repository = Path(folder) / "repository"
        on_gpu.plant([branch], repository)
        on_gpu.compile_all([branch], repository, Path(folder) / "warm")
        names = [*branch.workloads, *(UNCHANGED if args.unchanged else ())]
        command = [sys.executable, "-m", "warpwatch", "compare", "base", branch.name, "--json"]
        for name in names:
            command += ["--workload", name]
        kept = str(Path(folder) / "compiled")
        environment = {**on_gpu.beside(repository), CACHE_VARIABLE: kept}

        def compare(*more: str) -> str:
            run = [*command, "--target", "sm_90", *more]
            return subprocess.run(run, cwd=repository, stdout=subprocess.PIPE, text=True,
                                  env=environment, timeout=900).stdout  # fmt: skip

        compare("--compiled-only")  # fills the cache
        began = time.monotonic()
        said = compare()
        seconds = time.monotonic() - began
    document = json.loads(said)
    rows = on_gpu.told(branch, document, seconds)
    for row in rows:
        print(row.line)
    found, equal = sum(row.right for row in rows), len(document["equal_calls"])
    print(f"{len(names)} workloads, {equal} of equal calls: a verdict in {seconds:.0f} s")
    print(f"{found} of {len(rows)} defects as planted")
    return 0 if found == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
