"""What templates ask of a judgement: titles, sparks, headlines, the verdict line."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from warpwatch.judge.evidence.coverage import missing_at as coverage_of
from warpwatch.judge.findings import triage
from warpwatch.judge.findings.judgement import ATTENTION, Judgement
from warpwatch.judge.findings.longer_times import LongerTime, longer_times
from warpwatch.judge.model.core import Change, Commit, Finding, SeriesKey
from warpwatch.judge.results.history import SeriesInfo, Table
from warpwatch.judge.series.addresses import short_address
from warpwatch.judge.series.changes import Kind, kind
from warpwatch.report.charts.roofs import SECONDS
from warpwatch.report.charts.series import detail_for, headline_of, spark_of, title_of

Groups = dict[Kind, list[Change]]
LATELY_S = 365 * 86_400
_FAILURES = "compile_failures"
_LONGEST_RANGE = 50  # commits; of a longer range each is too unlikely to say so on its page


class View:
    """A judgement with what is computed for display, each once."""

    def __init__(
        self, judgement: Judgement, repo: Path | None = None, asv_options: Sequence[str] = ()
    ):
        self.judgement = judgement
        self.repo = repo  # whose sources a finding shows
        self.asv_options = tuple(asv_options)
        self.info = judgement.info
        self.commit = judgement.commit
        self.address = judgement.addresses.of
        self.detail = detail_for(judgement.history.tables)
        self._columns: dict[Table, NDArray[np.intp]] = {}
        self._rows: dict[tuple[Table, str], dict[tuple[str, str], int]] = {}
        self._sparks: dict[SeriesKey, Markup] = {}
        self._headlines: dict[str, str] = {}

    def place(self, table: Table) -> str:
        """A machine by its name, with the environment where that alone would not tell it."""
        alike = [one for one in self.judgement.history.tables if one.machine == table.machine]
        names = (table.machine, table.environment if len(alike) > 1 else "")
        return ", ".join(filter(None, names)) or table.environment

    def title(self, info: SeriesInfo) -> str:
        return title_of(info)

    def spark(self, key: SeriesKey) -> Markup:
        """The line of a series in a row of text; of a large report the script draws it."""
        if self.detail.scripted:
            return Markup(f'<svg class="spark" data-of="{short_address(self.address(key))}"></svg>')
        if key not in self._sparks:
            place, changes = self.judgement.places[key], self.judgement.by_series.get(key, ())
            self._sparks[key] = spark_of(*place, changes, self.detail.spark)
        return self._sparks[key]

    def headline(self, finding: Finding) -> str:
        """What changed, in as few words as say it: shared metric, workload and targets."""
        if finding.identity not in self._headlines:
            changes = self._standing(finding)
            back = len(finding.changes) - len(changes)
            said = headline_of([self.info(change.series) for change in changes])
            self._headlines[finding.identity] = f"{said}, {back} more recovered" if back else said
        return self._headlines[finding.identity]

    def _standing(self, finding: Finding) -> Sequence[Change]:
        """What of an open finding did not recover; all changes of any other."""
        is_worse = finding.verdict in ATTENTION
        return (is_worse and self.judgement.standing(finding)) or finding.changes

    @cached_property
    def acceptances(self) -> dict[str, triage.Acceptance]:
        """By finding, those that hold today."""
        return triage.holding()

    @cached_property
    def timed(self) -> set[tuple[str, str, str]]:
        """Machine, workload and target of every series that counts and is a time, also where
        cycles judge the call."""
        return {
            (info.key.machine, info.workload, info.target)
            for table in self.judgement.history.tables
            for info in table.series
            if info.meaning.unit in SECONDS
            and (info.meaning.role == "verdict" or info.meaning.explains)
        }

    def owner(self, finding: Finding) -> str:
        """Who accepted a finding, else who wrote the commits that may hold its cause."""
        if finding.identity in self.acceptances:
            return self.acceptances[finding.identity].owner
        authors = dict.fromkeys(self.commit(name).author for name in finding.commits)
        return ", ".join(authors) if len(authors) <= 2 else f"{len(authors)} authors"

    @cached_property
    def attention(self) -> list[Finding]:
        """What got slower within ``LATELY_S`` of the newest commit, and nobody answers for."""
        return [one for one in self._open if one.kind == "slower" and self._is_new(one)]

    @cached_property
    def failing(self) -> list[Finding]:
        """What fails, as long ago as it may be: no value is no clean bill."""
        return [one for one in self._open if one.kind not in ("slower", "other space")]

    @cached_property
    def spaces(self) -> list[Finding]:
        """Where autotuned kernels began to choose from other configurations."""
        return [one for one in self._open if one.kind == "other space"]

    @cached_property
    def older(self) -> list[Finding]:
        """What got slower before, and still is: known, and nobody has to act today."""
        return [one for one in self._open if one.kind == "slower" and not self._is_new(one)]

    @cached_property
    def _open(self) -> list[Finding]:
        return [one for one in self._with("open") if one.identity not in self.acceptances]

    def _is_new(self, finding: Finding) -> bool:
        newest = self.judgement.history.measured[-1].time_s
        return self.commit(finding.since).time_s >= newest - LATELY_S

    @cached_property
    def accepted(self) -> list[Finding]:
        """What is worse, and somebody answers for."""
        return [one for one in self._with("open") if one.identity in self.acceptances]

    @cached_property
    def recovered(self) -> list[Finding]:
        """What got worse and is as it was: on record, but nobody has to act."""
        return self._with("recovered")

    @cached_property
    def other(self) -> list[Finding]:
        return self._with("improved")

    @cached_property
    def newest(self) -> Finding | None:
        """The regression that began last: of those to act on, else of those on record."""
        known = self.attention or [*self.older, *self.accepted, *self.recovered]
        slower = [one for one in known if one.kind == "slower"]
        positions = self.judgement.history.positions
        return max(slower, key=lambda one: (positions[one.since], one.cost), default=None)

    def _with(self, status: str) -> list[Finding]:
        return [f for f in self.judgement.findings if self.judgement.status(f) == status]

    @cached_property
    def verdict_line(self) -> str:
        """The whole report in one sentence."""
        measured = self.judgement.history.measured
        if not measured:
            return "Nothing was measured: this is no clean bill"
        more = f"; {many(len(self.older), 'older finding')} open still" if self.older else ""
        more += f"; {many(len(self.accepted), 'finding')} accepted" if self.accepted else ""
        spaces = sum(map(self._is_new, self.spaces))
        more += f"; {many(spaces, 'change')} of search spaces, for a GPU to judge" * bool(spaces)
        times = len(self.standing_times)
        more += f"; {longer(times)} than before" * bool(times)
        failed = len({c.series for one in self.failing for c in self._standing(one)})
        fails = f"{many(failed, 'series')} without a value any more"
        if not self.attention:
            said = f"No open regression in {many(len(measured), 'measured commit')}"
            if not self.judgement.coverage.judged:
                said = f"Nothing could be compared in {many(len(measured), 'measured commit')}"
            elif not self.judgement.coverage.enough:
                said = "Too few series could be judged: this is no clean bill"
            if self.failing:
                said = f"{many(len(self.failing), 'failure')} to look at: {fails}"
            return said + more
        fails = f"; {fails}" if self.failing else ""
        series = sum(len(self._standing(finding)) for finding in self.attention)
        commits = len({finding.since for finding in self.attention})
        return (
            f"{many(len(self.attention), 'finding')} to look at: {many(series, 'series change')}"
            f" for the worse at {many(commits, 'commit')}{fails}{more}"
        )

    @cached_property
    def longer_times(self) -> dict[str, list[LongerTime]]:
        """By commit, the predicted times that got worse there, and that no finding holds."""
        found: dict[str, list[LongerTime]] = {}
        for one in longer_times(self.judgement):
            if not one.held:
                found.setdefault(one.head, []).append(one)
        return found

    @cached_property
    def standing_times(self) -> list[LongerTime]:
        """Those of them that are still worse."""
        return [one for found in self.longer_times.values() for one in found if one.stands]

    @cached_property
    def unmeasured(self) -> list[str]:
        """What of the newest compiled commit has no values, and why; what never had any."""
        history, evidence = self.judgement.history, self.judgement.evidence
        compiled = [
            commit for table in history.tables if not table.machine for commit in table.commits
        ]
        if not compiled:
            return []
        newest = max(compiled, key=lambda commit: commit.position)
        said = coverage_of(evidence.folders, newest.hash)
        never = sorted(self._workloads - self._with_values)
        if never:
            more = f" and {len(never) - 8} more" if len(never) > 8 else ""
            said.append(f"never measured at any commit: {', '.join(never[:8])}{more}")
        return said

    @cached_property
    def _workloads(self) -> set[str]:
        return {info.workload for table in self.judgement.history.tables for info in table.series}

    @cached_property
    def _with_values(self) -> set[str]:
        """The workloads that have a value at some commit."""
        return {
            table.series[row].workload
            for table in self.judgement.history.tables
            for row in _said(table)
            if np.isfinite(table.values[row]).any()
        }

    def has_values(self, commit: Commit) -> bool:
        """Whether anything was measured at a commit: else it is not unchanged."""
        return commit.hash in self._commits_with_values

    @cached_property
    def _commits_with_values(self) -> set[str]:
        return {
            table.commits[column].hash
            for table in self.judgement.history.tables
            for column in np.flatnonzero(
                np.isfinite(table.values[_said(table)]).any(axis=0)
            ).tolist()
        }

    @cached_property
    def measured(self) -> dict[str, int]:
        """The place of every measured commit, oldest first."""
        return {c.hash: i for i, c in enumerate(self.judgement.history.measured)}

    def columns(self, table: Table) -> NDArray[np.intp]:
        """The table's commits as places among the measured ones."""
        if table not in self._columns:
            places = [self.measured[commit.hash] for commit in table.commits]
            self._columns[table] = np.array(places, dtype=np.intp)
        return self._columns[table]

    def rows_of(self, table: Table, metric: str) -> dict[tuple[str, str], int]:
        """By workload and target the rows of one metric."""
        if (table, metric) not in self._rows:
            self._rows[table, metric] = {
                (info.workload, info.target): row
                for row, info in enumerate(table.series)
                if info.meaning.metric == metric
            }
        return self._rows[table, metric]

    def groups(self, commit: Commit) -> Groups:
        """A commit's changes by their kind, a lost workload once for each target."""
        found: Groups = {
            "hurt": [],
            "lost": [],
            "other space": [],
            "helped": [],
            "gained": [],
        }
        seen = set()
        for change in self.judgement.by_commit.get(commit.hash, ()):
            name = kind(change)
            if name in ("lost", "gained"):
                info = self.info(change.series)
                identity = (name, info.workload, info.target, info.key.machine)
                if identity in seen:
                    continue
                seen.add(identity)
            found[name].append(change)
        return found

    @cached_property
    def finding_of(self) -> dict[str, list[Finding]]:
        """The findings that name a commit."""
        found: dict[str, list[Finding]] = {}
        for finding in self.judgement.findings:
            found.setdefault(finding.since, []).append(finding)
        return found

    @cached_property
    def may_begin_at(self) -> dict[str, list[Finding]]:
        """The findings whose range holds a commit, though another is where the step is."""
        found: dict[str, list[Finding]] = {}
        for finding in self.judgement.findings:
            for name in finding.commits[:_LONGEST_RANGE]:
                if name != finding.since:
                    found.setdefault(name, []).append(finding)
        return found


def _said(table: Table) -> list[int]:
    """The rows of a table whose values are measured: that nothing compiled is a number, too."""
    return [r for r, info in enumerate(table.series) if info.meaning.metric != _FAILURES]


def many(count: int, noun: str) -> str:
    """Write a count with its noun.

    Args:
        count: How many there are.
        noun: One of them.

    Returns:
        Such as "1 finding" and "2 findings".
    """
    if count == 1:
        return f"1 {noun}"
    plural = {"series change": "series changed", "series": "series"}.get(noun, f"{noun}s")
    return f"{count:,} {plural}"


def longer(count: int) -> str:
    """Say how many predicted times are worse.

    Args:
        count: How many there are.

    Returns:
        Such as "1 predicted time is worse".
    """
    return f"{many(count, 'predicted time')} {'is' if count == 1 else 'are'} worse"
