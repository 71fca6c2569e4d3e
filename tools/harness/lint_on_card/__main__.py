"""How much slower than the best of its table is a tuned configuration that ``lint`` names?

    python -m tools.harness.lint_on_card prepare JOB --triton 3.6.0 \\
        --case fused_moe KERNEL.py TABLE.json sm_80 'M=64,2048 K=4096 top_k=2'
    python -m tools.harness.lint_on_card time JOB

``prepare`` needs no GPU. It compiles each table for the target that it was tuned for and for
``sm_90``, as ``warpwatch lint`` does, at each M. The job file then holds the kernels and the
configurations: those that fell, and those that are predicted to be the fastest of the others.
``time`` needs a Hopper card, torch and Triton. It compiles in several processes, visits the
configurations of a case in turn, and prints the ratio of each to the fastest that did not fall.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tools.harness.lint_on_card import timing, tuned_kernels


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.harness.lint_on_card", description=(__doc__ or "").split("\n")[0]
    )
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("prepare", help="lint tables and write the job file")
    one.add_argument("job", type=Path)
    one.add_argument("--triton", default="3.6.0", metavar="VERSION")
    one.add_argument(
        "--case",
        action="append",
        nargs=5,
        required=True,
        metavar=("KERNEL", "SOURCE", "TABLE", "TARGET", "SHAPE"),
        help=f"one of {' '.join(tuned_kernels.KERNELS)}; the library's file with it; its table; "
        "the target that this was tuned for; 'M=64,2048 K=4096 top_k=2'",
    )
    other = commands.add_parser("time", help="time what a job file holds, on a card")
    other.add_argument("job", type=Path)
    other.add_argument("--seconds", type=float, default=80.0, help="for measuring, in all")
    args = parser.parse_args()
    if args.command == "time":
        return timing.timed(json.loads(args.job.read_text(encoding="utf-8")), args.seconds)
    # A card needs neither this nor the harness.
    from tools.harness.lint_on_card import lint

    document = lint.prepared(args.case, args.triton)
    args.job.write_text(json.dumps(document, indent=1), encoding="utf-8")
    fell = sum(len(case["fell"]) for case in document["cases"])
    print(f"{args.job}: {fell} configurations fell in {len(document['cases'])} cases")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
