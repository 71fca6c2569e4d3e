"""Judges two measured commits and prints the verdict table."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from warpwatch.judge.evidence.lookup import Evidence
from warpwatch.judge.model import thresholds
from warpwatch.judge.model.commits import head
from warpwatch.judge.pairs.accepted import with_findings
from warpwatch.judge.pairs.commits import (
    MOVES,
    ORDER,
    Compared,
    Comparison,
    judge_commits,
    subject,
)
from warpwatch.judge.pairs.run_verdict import LOOKS_LIKE_NOISE
from warpwatch.judge.results.history import History
from warpwatch.judge.results.strict_json import line
from warpwatch.report.builder import load
from warpwatch.report.words import SHAPES, legend, quantity

from .report import add_source_arguments, repository_of, sources_of

SCHEMA_VERSION = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source_arguments(parser)
    parser.add_argument("base", metavar="BASE", help="the commit compared with")
    parser.add_argument("head", metavar="HEAD", help="the commit judged")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--all", action="store_true", help="also list what is unchanged, and evidence"
    )
    parser.add_argument("--thresholds", type=Path, metavar="FILE",
                        help="what counts (default: reports/thresholds.toml)")  # fmt: skip


def main(args: argparse.Namespace) -> int:
    """Exit 0 clean, 1 regressed or missing, 3 inconclusive or nothing in common."""
    repository = repository_of(args)
    base, newer = head(repository, args.base), head(repository, args.head)
    limits = thresholds.load(args.thresholds)
    sources = sources_of(args)
    history = load(sources)
    verdict = judge_commits(history, base, newer, limits, Evidence(sources.folders))
    verdict = with_findings(history, base, newer, verdict)
    if args.json:
        print(json.dumps(_document(base, newer, verdict), indent=1, allow_nan=False))
    else:
        silent = unmeasured(history, base, newer)
        for one in silent:
            print(one)
        _print_table(base, newer, verdict, args.all, hide=bool(silent) and not args.all)
    return verdict.exit_code


def _document(base: str, newer: str, verdict: Compared) -> dict[str, object]:
    return {
        "schema_version": SCHEMA_VERSION,
        "base": base,
        "head": newer,
        "exit_code": verdict.exit_code,
        "coverage": {"judged": verdict.judged, "measured_at_base": verdict.measured},
        "expected_false_alarms": verdict.run.expected_false,
        "looks_like_noise": verdict.run.symmetric,
        "series": [
            {
                "machine": c.series.key.machine,
                "environment": c.series.key.environment,
                "benchmark": c.series.key.benchmark,
                "params": list(c.series.key.params),
                "metric": c.series.meaning.metric,
                "workload": c.series.workload,
                "target": c.series.target,
                "unit": c.series.meaning.unit,
                "role": c.series.meaning.role,
                "verdict": c.verdict,
                "before": c.before,
                "after": c.after,
                "reason": c.reason,
                "findings": list(c.findings),
                "accepted": c.accepted,
            }
            for c in verdict.comparisons
        ],
    }


def _named(comparison: Comparison) -> list[str]:
    return [f"finding {name}" for name in comparison.findings]


def unmeasured(history: History, base: str, newer: str) -> list[str]:
    """Name those of two commits that have no result, each with the nearest one that has some.

    Args:
        history: All that was measured.
        base: A full hash.
        newer: Another one.

    Returns:
        A printable line for each of the two without results.

    Example:
        >>> unmeasured(history, "5c8530b4...", "8d2f6c1a...")
        ['base 5c8530b4a1 was never measured; the nearest measured commit is 1f2e3d4c5b (Fix it)']
    """
    measured = {one.hash: one for one in history.measured}
    lines = []
    for which, commit, other in (("base", base, newer), ("head", newer, base)):
        if commit in measured:
            continue
        place = history.positions.get(commit, len(history.commits))
        others = [one for one in history.measured if one.hash != other]
        near = min(others, key=lambda one: abs(one.position - place), default=None)
        hint = f"; the nearest measured commit is {near.hash[:10]} ({near.subject})" if near else ""
        lines.append(line(f"{which} {commit[:10]} was never measured{hint}"))
    return lines


def _is_judged(comparison: Comparison) -> bool:
    return comparison.series.meaning.role == "verdict"


def _label(comparison: Comparison) -> str:
    """The verdict, or of evidence, which has none, how it moved."""
    if _is_judged(comparison):
        return f"{SHAPES[comparison.verdict]} {comparison.verdict}"
    return f"· evidence: {_moved(comparison)}"


def _moved(comparison: Comparison) -> str:
    one, meaning = comparison, comparison.series.meaning
    if one.before is None or one.after is None:
        return one.verdict
    if one.before == one.after:
        return "equal"
    if one.verdict != "unchanged":
        return MOVES.get(one.verdict, one.verdict)
    return "changed" if meaning.exact else "not judged" if meaning.better is None else one.verdict


def _counted(words: Iterable[str], accepted: Iterable[str] = ()) -> str:
    """How many there are of each word, and of these ``accepted``, what matters most first."""
    found, taken = Counter(words), Counter(accepted)
    known = (*ORDER, *MOVES.values(), "changed", "not judged", "equal")
    return ", ".join(
        f"{found[word]} {word}" + (f" ({taken[word]} accepted)" if taken[word] else "")
        for word in known
        if found[word]
    )


def _print_table(base: str, newer: str, verdict: Compared, show_all: bool, *, hide: bool) -> None:
    """``hide`` leaves out the rows: each would say the same."""
    shown = [
        c
        for c in (() if hide else verdict.comparisons)
        if show_all or (c.verdict != "unchanged" and _is_judged(c))
    ]
    cells_of = (
        (
            _label(c),
            quantity(c.before, c.series.meaning.unit),
            quantity(c.after, c.series.meaning.unit),
            c.series.meaning.metric or c.series.key.benchmark,
            subject(c.series),
            c.accepted or " ".join(filter(None, (c.reason, *_named(c)))),
        )
        for c in shown
    )
    rows = [tuple(map(line, cells)) for cells in cells_of]
    heads = ("verdict", "base", "head", "metric", "of", "")
    widths = [max(len(row[i]) for row in (heads, *rows)) for i in range(5)]
    for row in (heads, *rows) if rows else ():
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        print("  ".join((*cells, row[5])).rstrip())
    judged = [c for c in verdict.comparisons if _is_judged(c)]
    summary = _counted((c.verdict for c in judged), (c.verdict for c in judged if c.accepted))
    print(f"{base[:10]} -> {newer[:10]}: {summary or 'nothing was measured at either commit'}")
    for meaning in legend(c.verdict for c in shown if _is_judged(c)):
        print(meaning)
    if show_all and (explaining := [c for c in verdict.comparisons if not _is_judged(c)]):
        print(f"evidence, which raises no alarm: {_counted(map(_moved, explaining))}")
    print(f"{verdict.judged} series judged, of {verdict.measured} with a value at base")
    if verdict.run.symmetric:
        print(LOOKS_LIKE_NOISE)
    noisy = sum(not one.exact and not one.evidence for one in verdict.run.judged)
    if noisy:
        expected = verdict.run.expected_false
        print(f"of {noisy} noisy series, {expected:.2g} false alarms are expected")
