"""How well a judge did on one history: what it named, and whether its ranges are true."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np

from warpwatch.judge.findings.judgement import Judgement
from warpwatch.judge.model.core import Finding
from warpwatch.judge.scorecard.error_rates import Detector
from warpwatch.report.pages.change_groups import folded
from warpwatch.report.view import View

from .places import read
from .tables import Known

Outcome = Literal["named", "elsewhere", "missed"]
Named = dict[tuple[str, tuple[str, ...]], list[frozenset[str]]]


@dataclass(frozen=True)
class Counts:
    """What a reader of the report meets. ``true_ranges`` of ``ranges`` findings show a range that
    holds the step of their costliest series; ``attention`` counts the rows of what needs attention,
    and ``twice`` the benchmarks that lead two of them."""

    commits: int
    series: int
    judged: int
    findings: int
    open: int
    attention: int
    twice: int
    ranges: int
    true_ranges: int


class Commits:
    """What git says of the commits that a regression may be blamed on."""

    def __init__(self, git: Path):
        self._git = git
        self.between = cache(self._between)

    def guilty(self, known: Known) -> frozenset[str]:
        """The commits that are right: the guilty one and what it merged, or those between."""
        if not known.guilty:
            return self.between(known.before, known.after) | {known.after}
        parents = read(self._git, "rev-list", "--parents", "-1", known.guilty).split()[1:]
        merged = self.between(parents[0], known.guilty) if len(parents) > 1 else frozenset()
        return merged | {known.guilty}

    def _between(self, before: str, after: str) -> frozenset[str]:
        return frozenset(read(self._git, "rev-list", f"{before}..{after}").split())


def by_ours(judgement: Judgement) -> Named:
    """The ranges of the findings for the worse that each series is in, whatever their status."""
    found: Named = {}
    for finding in judgement.findings:
        if finding.verdict == "regressed":
            for change in finding.changes:
                key = (change.series.benchmark, change.series.params)
                found.setdefault(key, []).append(frozenset(finding.commits))
    return found


def by_other(
    judgement: Judgement, wanted: Iterable[Known], detect: Detector, commits: Commits
) -> Named:
    """The ranges in which another detector sees the wanted series get worse.

    Such a range reaches from the last measured commit before the step to the first one after it.
    """
    keys = {(one.benchmark, one.params) for one in wanted}
    found: Named = {}
    for table in judgement.history.tables:
        for row, info in enumerate(table.series):
            key = (info.key.benchmark, info.key.params)
            if key not in keys:
                continue
            columns = np.flatnonzero(np.isfinite(table.values[row]))
            values = table.values[row, columns]
            edges = [0, *detect([values])[0], len(values)]
            for start, here, end in zip(edges, edges[1:-1], edges[2:], strict=False):
                before, after = np.median(values[start:here]), np.median(values[here:end])
                if (after < before) == (info.meaning.better == "higher"):
                    last, first = (table.commits[columns[i]].hash for i in (here - 1, here))
                    found.setdefault(key, []).append(commits.between(last, first))
    return found


def outcomes(known: Sequence[Known], named: Named, commits: Commits) -> list[Outcome]:
    """Of each regression: its commit is named, another one of its series is, or none."""
    results: list[Outcome] = []
    for one in known:
        ranges = named.get((one.benchmark, one.params), [])
        right = commits.guilty(one)
        hit = any(right & shown for shown in ranges)
        results.append("named" if hit else "elsewhere" if ranges else "missed")
    return results


def counts(judgement: Judgement) -> Counts:
    """What the report of a judgement shows, counted."""
    view = View(judgement)
    steps = [one for one in judgement.findings if one.kind in ("slower", "faster")]
    rows = folded(view, view.attention)
    leading = Counter(row[0].changes[0].series.benchmark for row in rows)
    standing = [one for one in judgement.findings if judgement.status(one) == "open"]
    return Counts(
        commits=len(judgement.history.measured),
        series=judgement.coverage.series,
        judged=judgement.coverage.judged,
        findings=len(judgement.findings),
        open=len(standing),
        attention=len(rows),
        twice=sum(count > 1 for count in leading.values()),
        ranges=len(steps),
        true_ranges=sum(_is_true(judgement, one) for one in steps),
    )


def _is_true(judgement: Judgement, finding: Finding) -> bool:
    """Whether the costliest series steps inside the range, as the series itself was judged."""
    costliest = finding.changes[0]
    own = (
        change
        for change in judgement.by_series[costliest.series]
        if change.step.index == costliest.step.index
    )
    positions = judgement.history.positions
    shown = {positions[name] for name in finding.commits}
    for change in own:
        steps = range(positions[change.last_good] + 1, positions[change.first_commit] + 1)
        return bool(shown.intersection(steps))
    return False
