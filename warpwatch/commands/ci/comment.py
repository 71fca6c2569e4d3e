"""Writes the verdict on two measured commits as a pull request reads it."""

from __future__ import annotations

import argparse
import json
import sys

from warpwatch.ci import message
from warpwatch.ci.message.changes import code
from warpwatch.ci.pull_request import Judgement, conclude, lost, unseen
from warpwatch.commands.results.compare import unmeasured
from warpwatch.commands.results.report import (
    add_source_arguments,
    repository_of,
    sources_of,
)
from warpwatch.judge.evidence.lookup import Evidence
from warpwatch.judge.model import thresholds
from warpwatch.judge.model.commits import head
from warpwatch.judge.pairs.accepted import with_findings
from warpwatch.judge.pairs.commits import judge_commits
from warpwatch.judge.results.strict_json import line
from warpwatch.report.builder import load

_CODES = {"success": 0, "failure": 1, "neutral": 3, "action_required": 3}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source_arguments(parser)
    parser.add_argument("base", metavar="BASE", help="the commit compared with")
    parser.add_argument("head", metavar="HEAD", help="the commit judged")
    parser.add_argument(
        "--as",
        dest="form",
        choices=("comment", "summary", "check"),
        default="comment",
        help="a comment of at most 60 KB, a step summary, or a check run's fields as JSON",
    )
    parser.add_argument("--report-url", default="", metavar="URL", help="where the report is")


def main(args: argparse.Namespace) -> int:
    """Exit 0 clean, 1 regressed, 3 inconclusive or nothing in common."""
    repository = repository_of(args)
    base, newer = head(repository, args.base), head(repository, args.head)
    sources = sources_of(args)
    history = load(sources)
    judged = judge_commits(history, base, newer, thresholds.load(), Evidence(sources.folders))
    comparisons = with_findings(history, base, newer, judged).comparisons
    never, unmeasured_for = unseen(sources.folders, base, newer, comparisons)
    conclusion, note = conclude(comparisons, never=never)
    notes = [code(one, 400) for one in unmeasured(history, base, newer)]
    notes += [note] if note else []
    why = (*lost(sources.folders, newer, comparisons), *unmeasured_for)
    judgement = Judgement(conclusion, base, newer, tuple(comparisons), notes=tuple(notes), lost=why)
    for notice in history.notices:
        print(line(f"notice: {notice}"), file=sys.stderr)
    if args.form == "check":
        fields = {
            "schema_version": message.SCHEMA_VERSION,
            "head_sha": newer,
            "conclusion": conclusion,
            "title": message.title(judgement),
            "summary": message.summary(judgement),
        }
        print(json.dumps(fields, indent=1))
    elif args.form == "summary":
        print(message.summary(judgement), end="")
    else:
        print(message.comment(judgement, args.report_url), end="")
    return _CODES[conclusion]
