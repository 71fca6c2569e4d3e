"""Findings and changes in few rows: those of one benchmark, and those that moved alike, as one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from markupsafe import Markup

from warpwatch.judge.model import names
from warpwatch.judge.model.core import Change, Finding
from warpwatch.judge.series.changes import Kind, kind
from warpwatch.report import words
from warpwatch.report.view import View, many

_NAMED = 2  # so many that moved alike are named one by one
_ALIKE = 0.25  # of the size of a change


@dataclass(frozen=True)
class Member:
    """One series of a row."""

    title: str
    path: str
    before: str
    after: str
    size: str


@dataclass(frozen=True)
class Row:
    """Series of one metric that moved alike. ``outlier``: it moved by twice what most did, or
    more."""

    kind: Kind
    word: str
    place: str
    size: str
    members: tuple[Member, ...]
    spark: Markup
    outlier: bool

    @property
    def first(self) -> Member:
        """The one that moved most."""
        return self.members[0]


@dataclass(frozen=True)
class Part:
    """The rows of one metric, and what it says."""

    heading: str
    rows: tuple[Row, ...]
    series: int

    @property
    def noted(self) -> bool:
        """Whether a reader may ask why a row holds many series, or stands out."""
        return any(len(row.members) > 1 or row.outlier for row in self.rows)


def parts_of(view: View, changes: Sequence[Change]) -> list[Part]:
    """The rows of every metric, in the order in which the metrics come first; of benchmarks without
    one, the rows of every class."""
    found: dict[tuple[str, str, str], list[Change]] = {}
    for change in changes:
        info = view.info(change.series)
        metric = info.meaning.metric or _home_of(info.key.benchmark)
        found.setdefault((metric, names.home(change.series), words.word(change)), []).append(change)
    parts = []
    for (metric, home, _), members in found.items():
        benchmarks = {change.series.benchmark for change in members}
        if len(benchmarks) == 1 and not view.info(members[0].series).meaning.metric:
            metric = benchmarks.pop()
        above = metric if len(changes) > 1 else ""
        usual = median(_size(change) for change in members)
        rows = [
            _row(view, part, above, len(members) > _NAMED and _size(part[0]) >= 2 * usual)
            for part in _alike(members)
        ]
        heading = f"{metric}, {many(len(members), 'series')} on {home}"
        parts.append(Part(heading, tuple(rows), len(members)))
    return parts


def folded(view: View, findings: Sequence[Finding]) -> list[tuple[Finding, ...]]:
    """Findings in rows, so that no benchmark leads two of them.

    A benchmark that got slower at two commits leads two findings, and one person looks at both.

    Args:
        view: That shows the findings.
        findings: Those of one list, the most urgent first.

    Returns:
        The findings of each row in their order, and the rows in the order of their first findings.
    """
    rows: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        info = view.info(finding.changes[0].series)
        rows.setdefault((info.workload, info.meaning.metric), []).append(finding)
    return [tuple(row) for row in rows.values()]


Difference = dict[str, Any]


def differences(
    items: Sequence[Difference],
) -> tuple[list[tuple[str, list[Difference]]], list[Difference]]:
    """What else differs: metrics that moved on many workloads, and all other values."""
    found: dict[str, list[Difference]] = {}
    for item in items:
        found.setdefault(item["metric"], []).append(item)
    many_of = [(metric, of) for metric, of in found.items() if len(of) > _NAMED]
    return many_of, [one for of in found.values() if len(of) <= _NAMED for one in of]


def _alike(members: Sequence[Change]) -> Iterator[list[Change]]:
    """Neighbours in size that differ by little, the largest first; few of them one by one."""
    ordered = sorted(members, key=lambda change: (-_size(change), change.series.label))
    group: list[Change] = []
    for change in [*ordered, None]:
        if change is not None and (not group or _near(group[0], change)):
            group.append(change)
            continue
        if len(group) > _NAMED:
            yield group
        else:
            yield from ([one] for one in group)
        group = [change] if change is not None else []


def _near(one: Change, other: Change) -> bool:
    if (one.ratio > 1) != (other.ratio > 1):
        return False
    sizes = (_size(one), _size(other))
    return sizes[0] - sizes[1] <= _ALIKE * sizes[0]


def _size(change: Change) -> float:
    """How far it moved, whatever the direction; what came or went moved furthest."""
    if not math.isfinite(change.ratio) or change.ratio <= 0:
        return 1e9
    return abs(math.log(change.ratio))


def _home_of(benchmark: str) -> str:
    """The class of a benchmark, or its module."""
    return benchmark.rpartition(".")[0] or benchmark


def _row(view: View, part: Sequence[Change], above: str, outlier: bool) -> Row:
    """``above`` is what a heading says of the benchmark already."""
    members = []
    for change in part:
        info = view.info(change.series)
        place = " @ ".join(filter(None, (info.workload, info.target)))
        unit = info.meaning.unit
        before, after = (words.quantity(v, unit) for v in (change.step.before, change.step.after))
        title = place if info.meaning.metric else view.title(info)
        if not info.meaning.metric and above:
            alone = info.key.benchmark == above and info.key.params
            title = names.params(info.key) if alone else title.removeprefix(f"{above}.")
        members.append(
            Member(title, view.address(change.series), before, after, words.size(change, unit))
        )
    workloads = {view.info(change.series).workload for change in part}
    place = members[0].title if len(part) == 1 else f"{many(len(workloads), 'workload')}"
    if len(part) > 1 and len(workloads) != len(part):
        place += f", {many(len(part), 'series')}"
    sizes = list(dict.fromkeys(one.size for one in members))
    size = sizes[0] if len(sizes) == 1 else f"{sizes[-1]} to {sizes[0]}"
    spark, of = view.spark(part[0].series), (kind(part[0]), words.word(part[0]))
    return Row(*of, place, size, tuple(members), spark, outlier)
