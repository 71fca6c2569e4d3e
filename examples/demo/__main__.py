"""``python -m examples.demo``: plants changes in a git history and checks that all are found.

Exit 0 when every planted change is flagged at its commit, on its targets, with its cause, and
nothing else is; 1 when anything differs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from warpwatch.instruments.compiled.diff import sides

from . import spine, verdict
from .commits import COMMITS


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave everything in a new DIR")
    parser.add_argument("--triton", metavar="VERSION", help="measure with this one, such as 3.6.0")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to FILE, too")
    args = parser.parse_args(argv)
    if args.triton:
        try:
            folder = sides.triton_folder(args.triton)
        except ValueError as error:
            parser.error(f"--triton: {error}")
        if folder is not None:
            # asv and every process it starts look here first; this one imports no Triton.
            beside = os.environ.get("PYTHONPATH")
            os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *([beside] if beside else [])])
    if args.keep is not None and args.keep.exists():
        parser.error(f"--keep: {args.keep} is there already; name a folder to make")
    with tempfile.TemporaryDirectory(prefix="demo-") as temporary:
        place = (args.keep or Path(temporary) / "demo").resolve()
        place.mkdir(parents=True)
        return show(place, args.json)


def show(folder: Path, kept: Path | None = None) -> int:
    started = time.monotonic()
    count = len(COMMITS) + 1
    print(f"measuring {count} commits without a GPU, a few minutes ...", file=sys.stderr)
    done = spine.run(COMMITS, folder)
    rows = verdict.judge(done.commits, done.regressions)
    print(table(rows))
    if kept is not None:
        document = {"schema_version": 1, "rows": [asdict(row) for row in rows]}
        kept.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    wrong = [row for row in rows if row.mistakes]
    for row in wrong:
        for mistake in row.mistakes:
            print(f"WRONG {row.commit[:8]} {row.subject}: {mistake}")
    planted = [row for row in rows if row.planted]
    right = sum(not row.mistakes for row in planted)
    false = sum(bool(row.mistakes) for row in rows if not row.planted)
    print(
        f"{right} of {len(planted)} planted changes found at their commit with their cause, "
        f"{false} false alarms in {len(rows) - len(planted)} harmless commits"
    )
    print(f"{time.monotonic() - started:.0f} s", file=sys.stderr)
    return 1 if wrong else 0


def table(rows: list[verdict.Row]) -> str:
    """The rows as Markdown."""
    lines = [
        "| commit | subject | planted | found | targets | cause |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = (row.planted or "-", row.found or "-", " ".join(row.targets), row.cause)
        lines.append(f"| {row.commit[:8]} | {row.subject} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
