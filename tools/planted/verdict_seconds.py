"""How long a verdict on a GPU takes, from the start of the command, with warm compiler caches.

    python -m tools.planted.verdict_seconds [--only NAME ...] [--unchanged | --cards]

Plants the commits on one branch, by default four subtle ones, compiles all of them, and times one
``warpwatch compare`` of their workloads. ``--unchanged`` adds sixteen whose code the four leave as
it is. ``--cards`` compares twenty whose code the commits change, on one card and then on all that
are alike. Exits 1 where a defect was not found, or where more cards gave another verdict.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.planted import on_gpu
from tools.planted.plants import Branch
from warpwatch.config.package import CACHE_VARIABLE
from warpwatch.instruments import presence
from warpwatch.instruments.gpu.card import clocks

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

# Of these every one has other machine code where all of EVERYWHERE are planted.
EVERYWHERE = ("rows-scaled-twice", "start-offset-lost", "fewer-rows-together", "fewer-parts")
CHANGED = (
    "sdpa-fp16-B12-S256-H64-D64",
    "attention-bf16-B32-S512-H32-D64",
    "attention-bf16-B32-S512-H32-D64-causal",
    "attention-fp16-B4-S4096-H8-D64",
    "attention-bf16-B2-S4096-H32-D128",
    "attention-bf16-B2-S4096-H16-D256",
    "attention-bf16-B4-S4096-H16-D128-causal",
    "attention-bf16-B1-S8192-H32-G8-D128-causal",
    "attention-bf16-B1-S8192-H32-G8-D128-causal-window4096",
    "attention-backward-bf16-B4-S4096-H32-D64-causal",
    "attention-backward-bf16-B4-S4096-H16-D128-causal",
    "attention-backward-bf16-B1-S8192-H32-G8-D128-causal-window4096",
    "attention-varlen-backward-bf16-even-H32-G8-D128-causal",
    "attention-training-bf16-B4-S4096-H16-D128-causal",
    "attention-training-bf16-B4-S4096-H16-D128-causal-sink",
    "attention-training-bf16-B4-S4096-H32-D64-causal-sink",
    "matmul-fp16-4096x4096x4096",
    "matmul-bf16-4096x6144x4096-nt",
    "matmul-bf16-4096x28672x4096-nt",
    "attention-kvcache-bf16-B1-S1-KV16384-H32-G8-D128-page64-causal",
)


def main() -> int:
    """Exit 0 where every defect was found, 2 without a GPU."""
    parser = argparse.ArgumentParser(prog="python -m tools.planted.verdict_seconds")
    parser.add_argument("--only", action="append", default=[], metavar="NAME",
                        help="these commits (default: four subtle ones)")  # fmt: skip
    more = parser.add_mutually_exclusive_group()
    more.add_argument("--unchanged", action="store_true", help="sixteen workloads more")
    more.add_argument("--cards", action="store_true", help="twenty, on one card and on all")
    args = parser.parse_args()
    if not presence.has_gpu():
        parser.error("no GPU here: a verdict on a GPU needs one")
    cards = clocks.alike()
    if args.cards and len(cards) < 2:
        parser.error(f"--cards: expected several cards that are alike, found {len(cards)}")
    chosen = on_gpu.chosen(args.only or (EVERYWHERE if args.cards else FOUR))
    branch = Branch("verdict", True, tuple(one for each in chosen for one in each.plants))
    with tempfile.TemporaryDirectory(prefix="verdict-") as folder:
        repository = Path(folder) / "repository"
        on_gpu.plant([branch], repository)
        names = [*branch.workloads, *(UNCHANGED if args.unchanged else ())]
        if args.cards:
            names = list(CHANGED)
        on_gpu.compile_all([branch], repository, Path(folder) / "warm", names)
        command = [sys.executable, "-m", "warpwatch", "compare", "base", branch.name, "--json"]
        for name in names:
            command += ["--workload", name]
        kept = str(Path(folder) / "compiled")
        environment = {**on_gpu.beside(repository), CACHE_VARIABLE: kept}

        def compare(*more: str, seen: Sequence[str] = ()) -> tuple[str, float]:
            run = [*command, "--target", "sm_90", *more]
            only = {"CUDA_VISIBLE_DEVICES": ",".join(seen)} if seen else {}
            began = time.monotonic()
            said = subprocess.run(run, cwd=repository, stdout=subprocess.PIPE, text=True,
                                  env={**environment, **only}, timeout=900).stdout  # fmt: skip
            return said, time.monotonic() - began

        compare("--compiled-only")  # fills the cache
        if args.cards:
            runs = [(seen, *compare(seen=seen)) for seen in (cards[:1], cards)]
            return on_more_cards([(len(a), json.loads(b), c) for a, b, c in runs])
        said, seconds = compare()
    document = json.loads(said)
    rows = on_gpu.told(branch, document, seconds)
    for row in rows:
        print(row.line)
    found, equal = sum(row.right for row in rows), len(document["equal_calls"])
    print(f"{len(names)} workloads, {equal} of equal calls: a verdict in {seconds:.0f} s")
    print(f"{found} of {len(rows)} defects as planted")
    return 0 if found == len(rows) else 1


def on_more_cards(runs: Sequence[tuple[int, Mapping[str, Any], float]]) -> int:
    """Print how long each run took, and where verdicts differ.

    Args:
        runs: Of each its number of cards, the document of ``compare``, and its seconds.

    Returns:
        1 where a series that decides has another verdict on more cards, else 0.
    """
    verdicts = [
        {
            (row["subject"], row["metric"]): row["verdict"]
            for row in document["series"]
            if not row["evidence"] and not row["exact"]
        }
        for _, document, _ in runs
    ]
    (_, first, one), *others = runs
    worst = {one_of[0] for one_of, verdict in verdicts[0].items() if verdict == "regressed"}
    print(f"{len({name for name, _ in verdicts[0]})} workloads measured, {len(worst)} regressed, "
          f"{len(first['equal_calls'])} of equal calls")  # fmt: skip
    print(f"1 card: a verdict in {one:.0f} s")
    differ = 0
    for (count, _, seconds), found in zip(others, verdicts[1:], strict=True):
        print(f"{count} cards: a verdict in {seconds:.0f} s, {one / seconds:.2f} times as fast")
        for key in sorted(verdicts[0].keys() | found.keys()):
            before, now = (rows.get(key, "none") for rows in (verdicts[0], found))
            if before != now:
                differ += 1
                print(f"differs: {key[1]} of {key[0]}: {before} on one card, {now} on {count}")
    print(f"{differ} of {len(verdicts[0])} verdicts differ")
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
