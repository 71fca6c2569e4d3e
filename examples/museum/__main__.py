"""``python -m examples.museum``: replays regressions that others reported, without a GPU.

Exit 0 where every exhibit is found on its targets with its cause, or is missed as it says, and no
harmless edit is flagged; 1 where anything differs.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from .cases import CASES
from .harmless import HARMLESS
from .replay import Row, replay

SCHEMA_VERSION = 1


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.museum", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="exhibits and harmless edits; default: all"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to FILE, too")
    args = parser.parse_args(argv)
    known = {one.name for one in CASES} | {one.name for one in HARMLESS}
    if unknown := [name for name in args.names if name not in known]:
        parser.error(f"no exhibit is called {', '.join(unknown)}; there are {', '.join(known)}")
    wanted = set(args.names) or known
    started = time.monotonic()
    rows = replay(
        [one for one in CASES if one.name in wanted],
        [one for one in HARMLESS if one.name in wanted],
    )
    print(table([row for row in rows if row.source]))
    for line in (*summary(rows), *differences(rows)):
        print(line)
    print(f"{time.monotonic() - started:.0f} s", file=sys.stderr)
    if args.json is not None:
        document = {
            "schema_version": SCHEMA_VERSION,
            "triton": importlib.metadata.version("triton"),
            "rows": [asdict(row) for row in rows],
        }
        args.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return int(any(not row.as_stated for row in rows))


def table(rows: Sequence[Row]) -> str:
    """The exhibits as Markdown."""
    lines = ["| exhibit | found | cause | targets | said |", "|---|---|---|---|---|"]
    for row in rows:
        marks = ["yes" if one else "no" for one in (row.found, row.cause)]
        targets = " ".join(row.flagged) or "none"
        if not row.target or not row.found:
            targets += f" (expected {' '.join(row.expected)})"
        said = row.said.replace("|", "\\|")[:160]
        lines.append(f"| {row.name} | {marks[0]} | {marks[1]} | {targets} | {said} |")
    return "\n".join(lines)


def summary(rows: Sequence[Row]) -> list[str]:
    """How many were found and how many harmless edits were flagged."""
    exhibits = [row for row in rows if row.source]
    edits = [row for row in rows if not row.source]
    right = sum(row.right for row in exhibits)
    flagged = sum(not row.right for row in edits)
    return [
        f"{right} of {len(exhibits)} exhibits found on their targets with their cause",
        f"{flagged} of {len(edits)} harmless edits flagged",
    ]


def differences(rows: Sequence[Row]) -> list[str]:
    """What is not as the museum says."""
    return [
        f"DIFFERS {row.name}: flagged on {' '.join(row.flagged) or 'no target'}: {row.said}"
        for row in rows
        if not row.as_stated
    ]


if __name__ == "__main__":
    sys.exit(main())
