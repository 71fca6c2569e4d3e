"""Changes that share one cause as one finding: where it lies, what it costs, what it is."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from warpwatch.judge.evidence.lookup import Evidence
from warpwatch.judge.model.core import Change, Commit, Finding, FindingKind, SeriesKey
from warpwatch.judge.results.history import History, SeriesInfo, Table
from warpwatch.judge.series.changes import still_stands

from .attribution import Attribution, Ranged
from .joining import Group, grouped
from .losses import sorted_by_kind

_MOST_LOST = 1.0  # a metric that is no time counts as if the time followed it, up to twice the time
_MOST_ASKED = 12  # changes of one finding whose files are looked up
_SECONDS = {"seconds": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}

# Accepted findings are known by these words.
_SIDES: Mapping[FindingKind, str] = {"slower": "hurt", "faster": "helped"}

Home = tuple[str, str, str]


def group(
    changes: Iterable[Change], history: History, evidence: Evidence | None = None
) -> list[Finding]:
    """One finding for every cause and direction, the costliest first.

    ``grouping`` says which changes share a cause, and where it lies; ``losses``, which of them are
    failures. A benchmark that fails now and then is one finding. Where some of what a finding holds
    for the worse has recovered, the rest comes first and is what it costs.

    Args:
        changes: all of each series, oldest first.
        history: that they were found in.
        evidence: what was kept of the measured commits, to tell causes.

    Returns:
        The findings.
    """
    places = {info.key: (t, row) for t in history.tables for row, info in enumerate(t.series)}
    every = list(changes)
    newest: dict[SeriesKey, Change] = {change.series: change for change in every}
    times, causes = _Times(history), Attribution(history, evidence)
    findings: list[Finding] = []
    taken: set[str] = set()
    for name, found in sorted_by_kind(every, places).items():
        ranged = [_ranged(change, history, places) for change in found]
        if name == "flaky":
            parts = _by_benchmark(ranged)
        else:
            parts = grouped(ranged, [_cost([one], times) for one in ranged])
        for part in parts:
            findings.append(_finding(name, part, history, times, causes, newest, taken))
    findings.sort(key=lambda one: (-one.cost, -len(one.changes), one.identity))
    return findings


def _by_benchmark(ranged: Sequence[Ranged]) -> list[Group]:
    """All failures of a benchmark that fails now and then, the newest first."""
    found: dict[str, list[Ranged]] = {}
    for one in sorted(ranged, key=lambda one: -one.at):
        found.setdefault(one.info.key.benchmark, []).append(one)
    return [Group(tuple(of), of[0].first, of[0].last, 1.0) for of in found.values()]


class _Times:
    """How long a call of each workload takes, as far as any series of the history says."""

    def __init__(self, history: History):
        self._history = history
        self._known: dict[Home, float] | None = None
        self._usual = 1.0

    def of(self, info: SeriesInfo) -> float:
        """Seconds; the median of the suite where the workload's own time is unknown."""
        if self._known is None:
            self._known = {}
            for table in self._history.tables:
                for row, one in enumerate(table.series):
                    scale = _scale(one)
                    latest = table.latest(row) if scale else None
                    if scale and latest is not None and latest > 0:
                        self._known.setdefault(_home(one), latest * scale)
            if self._known:
                self._usual = float(np.median(list(self._known.values())))
        return self._known.get(_home(info), self._usual)


def _home(info: SeriesInfo) -> Home:
    return info.key.machine, info.workload, info.target


def _scale(info: SeriesInfo) -> float | None:
    """Seconds in the unit of a time that counts, by itself or where cycles judge the call; ``None``
    for anything else."""
    counts = info.meaning.role == "verdict" or info.meaning.explains
    return _SECONDS.get(info.meaning.unit) if counts else None


def _cost(members: Sequence[Ranged], times: _Times) -> float:
    """Seconds one run of the suite loses: of each workload once, by its time where that changed."""
    measured: dict[Home, float] = {}
    estimated: dict[Home, float] = {}
    for one in members:
        change, info = one.change, one.info
        scale, home = _scale(info), _home(info)
        lost = abs(change.step.after - change.step.before)
        if math.isnan(lost):
            found, seconds = estimated, 0.0  # what does not run loses no time
        elif scale:
            found, seconds = measured, lost * scale
        else:
            size = abs(change.ratio - 1) if change.ratio > 1 else 1 / max(change.ratio, 0.1) - 1
            found, seconds = estimated, times.of(info) * min(size, _MOST_LOST)
        found[home] = max(found.get(home, 0.0), seconds * change.step.confidence * info.weight)
    return sum({**estimated, **measured}.values())


def _ranged(change: Change, history: History, places: dict[SeriesKey, tuple[Table, int]]) -> Ranged:
    table, row = places[change.series]
    positions = history.positions
    first, last = positions[change.last_good] + 1, positions[change.first_commit]
    if not table.series[row].meaning.exact:
        present = table.present(row)
        newest = int(present[min(change.step.interval[1], len(present) - 1)])
        last = max(last, positions[table.commits[newest].hash])
    at = positions[change.first_commit]
    return Ranged(change, min(first, last), last, at, table, row)


def _finding(
    kind: FindingKind,
    part: Group,
    history: History,
    times: _Times,
    causes: Attribution,
    newest: Mapping[SeriesKey, Change],
    taken: set[str],
) -> Finding:
    if kind != "flaky":
        part = _holding_the_first(part, newest, kind)
    members = [_within(one, part) for one in part.members]
    between: Sequence[Commit] = history.commits[part.first : part.last + 1]
    # A commit that did not touch what all the changes are made from cannot be the cause.
    folders = {one.info.meaning.sources for one in members}
    touching: Sequence[Commit] = between
    if "" not in folders:
        touched = [history.touching.get(folder, frozenset()) for folder in folders]
        touching = [c for c in between if any(c.hash in found for found in touched)]
    commits = tuple(c.hash for c in touching or between)
    # Exact steps know their commit; the identity must not depend on a noisy one's estimate.
    exact = [one for one in members if one.info.meaning.exact]
    name = (exact or members)[0].change.first_commit
    if kind == "flaky":
        name = members[0].info.key.benchmark
    identity = _hashed(f"{_SIDES.get(kind, kind)} {name}")
    if identity in taken:
        identity = _hashed(f"{kind} {name} {members[0].change.series}")
    taken.add(identity)
    blamed = causes.blame(members, bool(touching))
    standing, recovered = _apart(members, newest, kind)
    members = [*standing, *recovered]
    return Finding(
        identity=identity,
        verdict=members[0].change.verdict,
        commits=commits,
        changes=tuple(one.change for one in members),
        cost=_cost(standing, times) if kind in _SIDES else 0.0,
        cause=blamed.cause,
        why=blamed.why,
        kind=kind,
        sure=part.sure,
        suspects=_suspects(commits, members, history, causes.evidence),
    )


def _suspects(
    commits: tuple[str, ...],
    members: Sequence[Ranged],
    history: History,
    evidence: Evidence | None,
) -> tuple[str, ...]:
    """The commits of a range, the likeliest first; nothing where no file tells them apart.

    First come those that touched the files of the kernels, then those that touched what these
    import, then those of which git does not say what they touched. Of each, a merge comes after
    what it brought, and what lies nearest to the likeliest place of the step comes first: between
    two measured commits that is the newest.
    """
    if evidence is None or len(commits) < 2:
        return ()
    own, imported = _files_of(members, evidence)
    changed: dict[str, set[str]] = {}
    for by_commit in history.files.values():
        for name in commits:
            if name in by_commit:
                changed.setdefault(name, set()).update(by_commit[name])

    def rank(name: str) -> int:
        files = changed.get(name)
        if files is None:
            return 2
        return 0 if files & own else 1 if files & imported else 3

    ranks = {name: rank(name) for name in commits}
    if len(set(ranks.values())) < 2:
        return ()
    likeliest, positions = members[0].at, history.positions

    def order(name: str) -> tuple[int, bool, int, int]:
        position = positions[name]
        is_merge = len(history.commits[position].parents) > 1
        return ranks[name], is_merge, abs(position - likeliest), -position

    return tuple(sorted(commits, key=order))


def _files_of(members: Sequence[Ranged], evidence: Evidence) -> tuple[set[str], set[str]]:
    """The files of the kernels of some changes, and those that they import."""
    own: set[str] = set()
    imported: set[str] = set()
    for one in members[:_MOST_ASKED]:
        for commit in (one.change.first_commit, one.change.last_good):
            for triton in evidence.tritons(commit):
                for place, (first, second) in evidence.sources(commit, triton).items():
                    if place[0] == one.info.workload and one.info.target in ("", place[1]):
                        own |= first
                        imported |= second
    return own, imported


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _within(one: Ranged, part: Group) -> Ranged:
    """The change at a commit of the range: where others know better, its own likeliest gives way.

    Its interval reaches into the range; the first commit there that has a value of it stands.
    """
    if part.first <= one.at <= part.last:
        return one
    columns = (one.table.commits[column] for column in one.table.present(one.row).tolist())
    last = min(one.last, part.last)
    held = next((commit for commit in columns if commit.position >= part.first), None)
    if held is None or held.position > last:
        return one
    change = replace(one.change, first_commit=held.hash)
    return replace(one, change=change, at=held.position)


def _holding_the_first(part: Group, newest: Mapping[SeriesKey, Change], kind: FindingKind) -> Group:
    """The group with a range that holds the step of the change that is shown first.

    That is the leader, around which the range was found, as long as the leader still stands.
    """
    first = (_apart(part.members, newest, kind)[0])[0]
    if any(one.info.meaning.exact for one in part.members):
        return part
    return replace(part, first=min(part.first, first.at), last=max(part.last, first.at))


def _apart(
    members: Sequence[Ranged], newest: Mapping[SeriesKey, Change], kind: FindingKind
) -> tuple[Sequence[Ranged], Sequence[Ranged]]:
    """What still stands and what has recovered; all as standing where all has, or got better."""
    parts: tuple[list[Ranged], list[Ranged]] = [], []
    for one in members:
        stands = kind == "faster" or still_stands(
            one.change, newest[one.change.series], one.table, one.row
        )
        parts[not stands].append(one)
    return parts if parts[0] else (members, [])
