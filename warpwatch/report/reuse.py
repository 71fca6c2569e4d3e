"""Which pages of the old site are those of the new one: known by what would be drawn on them.

A page is taken over where everything it is drawn from is what it was: its inputs are named here,
beside how it is drawn. What is large among them is named by a digest: a series by that of its
history, a result file by size and time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from warpwatch.judge.findings import triage
from warpwatch.judge.model.core import Change, Commit, Finding, SeriesKey
from warpwatch.judge.model.directions import Meaning
from warpwatch.judge.results.history import Table
from warpwatch.judge.series.addresses import SeriesPage
from warpwatch.judge.series.changes import ends

from . import sentences, words
from .atomic_site import FreshSite, encoded
from .pages import sampling
from .pages.series import data_of, is_scripted, last_kind
from .site_data import table_name
from .view import View

Stamps = Mapping[str, tuple[int, int]]
# What a part of a page is drawn from, and what draws it; where it lies in a page.
Part = tuple[object, Callable[[], str]]
_Place = tuple[str, int, int]


@dataclass
class Pages:
    """Writes pages, or takes them over from the site that ``remembered`` describes.

    ``digests`` name the history of each series, ``stamps`` are size and time of result files.
    ``identities`` are those of the pages that went through here, to be remembered.
    """

    view: View
    fresh: FreshSite
    look: str
    remembered: Mapping[str, Any]
    digests: Mapping[SeriesKey, str]
    stamps: Stamps
    identities: dict[str, Any] = field(default_factory=dict)
    _states: dict[SeriesKey, str] = field(default_factory=dict)
    _rows: dict[SeriesKey, str] = field(default_factory=dict)
    _places: dict[Table, str] = field(default_factory=dict)

    def draw(self, path: str, inputs: object, make: Callable[[], str | bytes]) -> None:
        """One page; ``inputs`` are all that its text depends on, ``None`` where nobody can say."""
        if inputs is None:
            self.fresh.write(path, make())
            return
        identity = self.identities[path] = self._identity(path, inputs)
        if self.remembered.get(path) != identity or not self.fresh.keep(path):
            self.fresh.write(path, make())

    def draw_parts(
        self,
        path: str,
        parts: Sequence[Part],
        make: Callable[[list[Markup]], str],
    ) -> None:
        """One page of which parts are taken over where it cannot be as a whole: each part is its
        inputs and what draws it. Nothing but the parts' inputs and ``path`` may decide the page."""
        names = [self._identity(path, inputs) for inputs, _ in parts]
        known: list[_Place] = self.remembered.get(path, [])
        if [name for name, _, _ in known] == names and self.fresh.keep(path):
            self.identities[path] = known
            return
        places = {name: (start, end) for name, start, end in known}
        old = self.fresh.old(path) if any(name in places for name in names) else b""
        drawn = []
        for name, (_, draw) in zip(names, parts, strict=True):
            start, end = places.get(name, (0, 0))
            drawn.append(old[start:end].decode("utf-8", "replace") or draw())
        page = encoded(make([Markup(part) for part in drawn]))
        self.fresh.write(path, page)
        found, end = [], 0
        for name, part in zip(names, map(encoded, drawn), strict=True):
            start = page.index(part, end)
            end = start + len(part)
            found.append((name, start, end))
        self.identities[path] = found

    def _identity(self, path: str, inputs: object) -> str:
        text = f"{self.look} {path} {inputs!r}"
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()

    def state(self, key: SeriesKey) -> str:
        """Equal where a series would be drawn the same: its history, and where it lies among the
        commits of its table and of the site."""
        state = self._states.get(key)
        if state is None:
            table, row = self.view.judgement.places[key]
            place = self._place(table, table.present(row))
            state = f"{self.digests[key]} {place} {len(table.commits)} {self.view.address(key)}"
            self._states[key] = state
        return state

    def row(self, key: SeriesKey) -> str:
        """Equal where a row would show the same of a series. Of a large site its line and its
        newest value are drawn from its history."""
        if not self.view.detail.scripted:
            return self.state(key)
        row = self._rows.get(key)
        if row is None:
            info = self.view.info(key)
            words = (key, info.workload, info.target, info.work, info.weight)
            row = self._rows[key] = f"{words} {_said(info.meaning)} {self.view.address(key)}"
        return row

    def histories(self, page: SeriesPage) -> object:
        """Of the series of a page as scripts look them up."""
        table, by_series = page.table, self.view.judgement.by_series
        keys = [table.series[row].key for row in page.rows]
        changes = [by_series.get(key) for key in keys] if self.view.detail.scripted else ()
        return table_name(table), [self.state(key) for key in keys], changes

    def _place(self, table: Table, present: NDArray[np.intp]) -> str:
        """Where a series lies; mostly all of a table lie alike."""
        whole = len(present) == len(table.commits)
        place = self._places.get(table) if whole else None
        if place is None:
            state = hashlib.blake2b(present.tobytes(), digest_size=12)
            state.update(self.view.columns(table)[present].tobytes())
            place = state.hexdigest()
            if whole:
                self._places[table] = place
        return place

    def series(self, page: SeriesPage) -> object:
        view, table = self.view, page.table
        instrument = sampling.instrument(view, table, page.rows[0])
        if not is_scripted(view, page):
            return instrument, [
                (self.state(table.series[row].key), sampling.said(view, table, row))
                for row in page.rows
            ]
        return instrument, [
            (
                self.row(table.series[row].key),
                last_kind(view, table, row),
                table.border_commits(row),
                len(table.present(row)) > 1,
            )
            for row in page.rows
        ]

    def workload(self, members: Sequence[tuple[Table, int]]) -> object:
        """Of the series of one machine and environment."""
        infos = [table.series[row] for table, row in members]
        works = [
            (one.work.flops, one.work.bytes_moved, one.work.formula_bytes)
            for one in infos
            if one.work
        ]
        return [[self.state(info.key) for info in infos], *works]

    def commit(
        self, commit: Commit, beside: Sequence[Commit | None], shown: int, most: int
    ) -> object:
        """``shown`` changes of a kind are drawn, and ``most`` findings."""
        groups = self.view.groups(commit)
        findings = self.view.finding_of.get(commit.hash, [])[:most]
        within = self.view.may_begin_at.get(commit.hash, [])[:most]
        return (
            commit,
            beside,
            [self._card(one) for one in findings],
            [self._line(one) for one in within],
            [
                (words.each_word(members), len(members), self._changes(members[:shown]))
                for members in groups.values()
            ],
        )

    def _line(self, finding: Finding) -> object:
        """What one line says of a finding."""
        return (finding.identity, self.view.headline(finding), words.word(finding.changes[0]))

    def _card(self, finding: Finding) -> object:
        """What the card of a finding says."""
        view, first = self.view, finding.changes[0]
        likeliest = view.commit(finding.likeliest)
        return (
            (finding.identity, finding.kind, finding.cause, finding.why, finding.reasons[:1]),
            finding.predicted,
            (finding.sure, sentences.stake(view, finding), len(finding.commits)),
            (self._line(finding), sentences.most(view, finding)),
            (view.judgement.status(finding), view.owner(finding)),
            triage.word(view.acceptances.get(finding.identity)),
            (likeliest, likeliest.hash in view.measured),
            self.row(first.series),
        )

    def finding(self, finding: Finding, evidence: Sequence[Mapping[str, Any]]) -> object:
        """``evidence`` is what the page says of other metrics."""
        view, judgement = self.view, self.view.judgement
        if self._kept_evidence:
            # It is read while pages are drawn, and each page names the files refused so far.
            return None
        changes = (finding.changes[0], *islice(self._noisy(finding), 1))
        sides = [self._sides(change) for change in changes]
        return (
            finding,
            (view.headline(finding), sentences.stake(view, finding)),
            judgement.status(finding),
            triage.word(view.acceptances.get(finding.identity)),
            [self.row(change.series) for change in finding.changes],
            sides,
            [(item, view.address(item["key"])) for item in evidence],
            data_of(view, *judgement.places[finding.changes[0].series]),
        )

    def commits_of(self, finding: Finding) -> object:
        """Of what a page shows of the commits that may hold the cause."""
        view, first = self.view, finding.changes[0]
        commits = [view.commit(name) for name in finding.commits]
        return (
            [(one, one.hash in view.measured) for one in commits],
            (finding.suspects, view.info(first.series).meaning.sources),
            (first.last_good, first.first_commit),
        )

    def samples(self, finding: Finding) -> object:
        """Of what a page shows of the first noisy series, before and after."""
        return [
            (change.series, self.view.info(change.series), self._sides(change))
            for change in islice(self._noisy(finding), 1)
        ]

    def _noisy(self, finding: Finding) -> Iterator[Change]:
        return (c for c in finding.changes if not self.view.info(c.series).meaning.exact)

    def _sides(self, change: Change) -> object:
        """The commits before and after a change, their files, and what those say of its series."""
        table, row = self.view.judgement.places[change.series]
        sides = []
        for commit in ends(table, row, change):
            column = table.column_of(commit)
            files = [(str(p), self.stamps.get(str(p))) for p in table.files.get(commit, ())]
            cells = (table.values, table.low, table.high) if column is not None else ()
            said = [float(cell[row, column]) for cell in cells]
            started = column is not None and int(table.started_ms[column])
            sides.append((commit, files, said, started))
        return sides

    def _changes(self, changes: Sequence[Any]) -> object:
        return [(change, self.row(change.series)) for change in changes]

    @cached_property
    def _kept_evidence(self) -> bool:
        return bool(self.view.judgement.evidence.listing())


@lru_cache(maxsize=1024)
def _said(meaning: Meaning) -> str:
    """All series of a benchmark share one, which takes longer to write than the rest of a row."""
    return repr(meaning)
