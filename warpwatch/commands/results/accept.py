"""Accepts a finding, with an owner, a reason and an expiry, in reports/triage.toml."""

from __future__ import annotations

import argparse
import datetime
from pathlib import Path

from warpwatch.judge.findings import triage


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("finding", help="its identity, as the report shows it")
    parser.add_argument("--owner", required=True, help="who answers for it")
    parser.add_argument("--reason", required=True, help="why it is accepted, in words")
    parser.add_argument("--days", type=int, default=90, metavar="N",
                        help="until it counts again (default %(default)s)")  # fmt: skip
    parser.add_argument("--file", type=Path, default=triage.default_file(), metavar="FILE")


def main(args: argparse.Namespace) -> int:
    today = datetime.date.today()
    if not 1 <= args.days <= triage.LONGEST_DAYS:
        raise ValueError(f"--days: expected 1 to {triage.LONGEST_DAYS}, got {args.days}")
    expires = today + datetime.timedelta(days=args.days)
    triage.accept(
        args.file, triage.Acceptance(args.finding, args.owner, args.reason, today, expires)
    )
    print(f"{args.finding} is accepted until {expires}; commit {args.file}")
    return 0
