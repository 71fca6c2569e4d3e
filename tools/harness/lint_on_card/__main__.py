"""How much slower than the best of its table is a tuned configuration that ``lint`` names?

    python -m tools.harness.lint_on_card prepare JOB --triton 3.6.0 \\
        --case fused_moe KERNEL.py TABLE.json sm_80 'M=64,2048 K=4096 top_k=2'
    python -m tools.harness.lint_on_card time JOB --out TIMES
    python -m tools.harness.lint_on_card count JOB TIMES

``prepare`` needs no GPU. It compiles each table for the target that it was tuned for and for
``sm_90``, as ``warpwatch lint`` does, at each M. The job file then holds the kernels, the
configurations that fell, and the others. ``time`` needs a Hopper card, torch and Triton. It
compiles in several processes, visits the configurations of a case in turn, and prints the ratio of
each to the fastest that did not fall. ``count`` needs no GPU: it holds what a newer ``prepare``
found against times that a card wrote.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tools.harness.lint_on_card import counting, timing, tuned_kernels


def main() -> int:
    """Exit 0 where nine of ten that fell are slower, 1 where fewer are, 2 for an error."""
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
    other.add_argument("--out", type=Path, metavar="TIMES", help="write the times there")
    last = commands.add_parser("count", help="hold a job file against times, without a card")
    last.add_argument("job", type=Path)
    last.add_argument("times", type=Path)
    args = parser.parse_args()
    if args.command == "prepare":
        # A card needs neither this nor the harness.
        from tools.harness.lint_on_card import lint

        document = lint.prepared(args.case, args.triton)
        args.job.write_text(json.dumps(document, indent=1), encoding="utf-8")
        fell = sum(len(case["fell"]) for case in document["cases"])
        print(f"{args.job}: {fell} configurations fell in {len(document['cases'])} cases")
        return 0
    job = json.loads(args.job.read_text(encoding="utf-8"))
    if args.command == "time":
        times = timing.timed(job, args.seconds)
        if args.out:
            args.out.write_text(json.dumps(times, indent=1), encoding="utf-8")
        found = counting.counted(job, times)
    else:
        try:
            found = counting.counted(job, json.loads(args.times.read_text(encoding="utf-8")))
        except ValueError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        print("\n".join(found.lines))
    print(found.summary)
    return int(not found.is_enough)


if __name__ == "__main__":
    raise SystemExit(main())
