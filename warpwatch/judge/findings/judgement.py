"""A history with its judgement: what every page, comment and verdict file is made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from warpwatch.judge.evidence.gaps import leave_gaps
from warpwatch.judge.evidence.lookup import Evidence
from warpwatch.judge.model.core import Change, Commit, Finding, SeriesKey
from warpwatch.judge.model.directions import Directions
from warpwatch.judge.results.assembly import assemble
from warpwatch.judge.results.folders import list_folders, read_folders
from warpwatch.judge.results.history import History, SeriesInfo, Table
from warpwatch.judge.results.processes import Workers
from warpwatch.judge.series.addresses import Addresses
from warpwatch.judge.series.changes import changes_of_rows, still_stands
from warpwatch.judge.series.coverage_statement import Coverage, coverage
from warpwatch.judge.series.incremental import judge_tables
from warpwatch.judge.series.withheld import withheld

from . import predicted_times
from .causes import atomic_updates, reasons
from .grouping import group

# Verdicts that somebody should look at, as long as the finding is open.
ATTENTION = ("regressed", "missing", "not applicable", "inconclusive")


@dataclass(frozen=True, eq=False)
class Judgement:
    """The one source: changes by series, and the findings they make."""

    history: History
    by_series: Mapping[SeriesKey, tuple[Change, ...]]
    findings: tuple[Finding, ...]
    evidence: Evidence = field(default_factory=Evidence)

    def explained(self) -> Judgement:
        """The same judgement with the reasons the compiled metrics give for each finding."""
        return replace(self, findings=tuple(map(self._explained, self.findings)))

    def _explained(self, finding: Finding) -> Finding:
        places = [(change, *self.places[change.series]) for change in finding.changes]
        known = [(change, table.series[row], table) for change, table, row in places]
        of_series = [(change, info) for change, info, _ in known]
        said = (*atomic_updates(known), *reasons(of_series, self.evidence))
        time = predicted_times.sentence(of_series, self.evidence)
        return replace(finding, reasons=said, predicted=time)

    @cached_property
    def coverage(self) -> Coverage:
        """How much of the history could be judged."""
        return coverage(self.history)

    @cached_property
    def by_commit(self) -> dict[str, list[Change]]:
        found: dict[str, list[Change]] = {}
        for changes in self.by_series.values():
            for change in changes:
                found.setdefault(change.first_commit, []).append(change)
        return found

    @cached_property
    def places(self) -> dict[SeriesKey, tuple[Table, int]]:
        return {
            info.key: (table, row)
            for table in self.history.tables
            for row, info in enumerate(table.series)
        }

    @cached_property
    def addresses(self) -> Addresses:
        return Addresses(self.history.tables)

    @cached_property
    def workloads(self) -> dict[str, list[tuple[Table, int]]]:
        found: dict[str, list[tuple[Table, int]]] = {}
        for table in self.history.tables:
            for row, info in enumerate(table.series):
                found.setdefault(info.workload, []).append((table, row))
        return found

    def status(self, finding: Finding) -> str:
        """``improved`` for a change to the better, else ``open`` or ``recovered``."""
        if finding.verdict not in ATTENTION:
            return "improved"
        return "open" if self.is_open(finding) else "recovered"

    def is_open(self, finding: Finding) -> bool:
        """Whether something that got worse is still worse: at least a tenth of the change stays."""
        return bool(self.standing(finding))

    def standing(self, finding: Finding) -> list[Change]:
        """Those of a finding's changes for the worse that did not recover."""
        found = self._standing.get(finding.identity)
        if found is None:
            found = self._standing[finding.identity] = [
                change
                for change in finding.changes
                if still_stands(
                    change, self.by_series[change.series][-1], *self.places[change.series]
                )
            ]
        return found

    @cached_property
    def _standing(self) -> dict[str, list[Change]]:
        """By finding: many pages ask."""
        return {}

    def info(self, key: SeriesKey) -> SeriesInfo:
        table, row = self.places[key]
        return table.series[row]

    def commit(self, commit: str) -> Commit:
        return self.history.commits[self.history.positions[commit]]


def judged_changes(
    history: History, by_series: Mapping[SeriesKey, tuple[Change, ...]]
) -> dict[SeriesKey, tuple[Change, ...]]:
    """Leave the changes out that say nothing without a GPU.

    Those are of the bound where atomics came or went, and of all that is read from the code of an
    autotuned kernel where another configuration was recorded.

    Args:
        history: that they were found in.
        by_series: the changes of each series, oldest first.

    Returns:
        The same, without those.
    """
    found = dict(by_series)
    for table in history.tables:
        for row, info in enumerate(table.series):
            if found.get(info.key):
                found[info.key] = tuple(
                    one for one in found[info.key] if not _says_nothing(one, table, row)
                )
    return found


def _says_nothing(change: Change, table: Table, row: int) -> bool:
    columns = [table.column_of(commit) for commit in (change.last_good, change.first_commit)]
    return withheld(table, row, columns) is not None


def judge(
    history: History, evidence: Evidence | None = None, workers: Workers | None = None
) -> Judgement:
    """Every series judged here and now, and the findings the changes make."""
    if workers:
        judged = judge_tables(history.tables, {}, workers)
        by_series = {key: one.changes for key, one in judged.items()}
    else:
        by_series = {
            info.key: tuple(changes)
            for table in history.tables
            for info, changes in zip(
                table.series, changes_of_rows(table, range(len(table.series))), strict=True
            )
        }
    by_series = judged_changes(history, by_series)
    evidence = evidence or Evidence()
    findings = group((c for found in by_series.values() for c in found), history, evidence)
    return Judgement(history, by_series, tuple(findings), evidence).explained()


def judge_folders(
    folders: Sequence[Path], repo: Path, directions: Directions | None = None
) -> Judgement:
    """What the results in ``folders`` say of the commits of ``repo``."""
    evidence = Evidence(folders)
    with Workers() as workers:
        results = read_folders(folders, list_folders(folders), workers)
        history = leave_gaps(assemble(results, repo, directions or Directions()), evidence)
        return judge(history, evidence, workers)
