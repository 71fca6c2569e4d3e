"""Accepts findings, with an owner, a reason and an expiry, in reports/triage.toml."""

from __future__ import annotations

import argparse
import datetime
import sys
from pathlib import Path, PurePosixPath

from warpwatch.judge.findings import triage
from warpwatch.judge.findings.judgement import Judgement, judge
from warpwatch.judge.results.processes import Workers
from warpwatch.judge.series.addresses import finding_path
from warpwatch.report.builder import load
from warpwatch.report.view import many

from .report import add_source_arguments, default_results, sources_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("finding", nargs="?",
                       help="its identity, or the name of its page in the report")  # fmt: skip
    which.add_argument("--before", type=_date, metavar="DATE",
                       help="instead: every open finding of commits before that day, as a "
                            "baseline (YYYY-MM-DD)")  # fmt: skip
    parser.add_argument("--owner", required=True, help="who answers for it")
    parser.add_argument("--reason", required=True, help="why it is accepted, in words")
    parser.add_argument("--days", type=int, default=90, metavar="N",
                        help="until it counts again (default %(default)s)")  # fmt: skip
    parser.add_argument("--file", type=Path, default=triage.default_file(), metavar="FILE")
    add_source_arguments(parser)


def main(args: argparse.Namespace) -> int:
    """Exit 0 when the findings are accepted."""
    today = datetime.date.today()
    if not 1 <= args.days <= triage.LONGEST_DAYS:
        raise ValueError(f"--days: expected 1 to {triage.LONGEST_DAYS}, got {args.days}")
    expires = today + datetime.timedelta(days=args.days)
    names = _open_before(args) if args.before else [_identity(args)]
    triage.accept(
        args.file,
        *(triage.Acceptance(name, args.owner, args.reason, today, expires) for name in names),
    )
    said = many(len(names), "finding") if args.before else names[0]
    verb = "is" if len(names) == 1 else "are"
    print(f"{said} {verb} accepted until {expires}; commit {args.file}")
    return 0


def _identity(args: argparse.Namespace) -> str:
    """That of the finding which is named. Without any results a name is taken as it is."""
    name = str(args.finding).rpartition("/")[2].removesuffix(".html")
    if not args.results and not any(folder.is_dir() for folder in default_results()):
        print("no results here: nobody checked that there is such a finding", file=sys.stderr)
        return name
    findings = _judged(args).findings
    for one in findings:
        if name in (one.identity, PurePosixPath(finding_path(one.identity)).stem):
            return one.identity
    first = f", such as {findings[0].identity}" if findings else ""
    raise ValueError(
        f"finding: the results hold none that is called {name!r}, but "
        f"{many(len(findings), 'other')}{first}; --results DIR names the results it was found in"
    )


def _judged(args: argparse.Namespace) -> Judgement:
    """What the results say; a long history takes half a minute, so it says what it is at."""
    history = load(sources_of(args))
    series = sum(len(table.series) for table in history.tables)
    of = f"{many(series, 'series')} over {many(len(history.measured), 'commit')}"
    print(f"judging {of}", file=sys.stderr, flush=True)
    with Workers() as workers:
        return judge(history, workers=workers)


def _open_before(args: argparse.Namespace) -> list[str]:
    """The open findings of commits before a day that the file does not know yet."""
    judgement = _judged(args)
    known = {one.finding for one in triage.load(args.file)}
    end = datetime.datetime.combine(args.before, datetime.time(), datetime.UTC).timestamp()
    return [
        one.identity
        for one in judgement.findings
        if judgement.status(one) == "open"
        and one.identity not in known
        and judgement.commit(one.since).time_s < end
    ]


def _date(text: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected a date such as 2026-01-31, got {text!r}"
        ) from None
