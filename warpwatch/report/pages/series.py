"""The pages of series: what one benchmark measures of one workload, a section a series."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from markupsafe import Markup

from warpwatch.judge.model import names
from warpwatch.judge.model.core import Commit
from warpwatch.judge.results.history import SeriesInfo, Table
from warpwatch.judge.series.addresses import SeriesPage, history_file
from warpwatch.judge.series.changes import Kind, kind
from warpwatch.judge.series.noise import Noise
from warpwatch.report import words
from warpwatch.report.charts.data import inline
from warpwatch.report.charts.series import chart_data, chart_of, noises, title_of
from warpwatch.report.rendering import commit_path, render
from warpwatch.report.view import View

from . import sampling


@dataclass(frozen=True)
class ChangeRow:
    """A change of a series in words."""

    kind: Kind
    word: str
    commit: Commit
    before: str
    after: str
    size: str


@dataclass(frozen=True)
class Section:
    """One series of a page. Where it is ``scripted`` the script draws its chart and writes its
    newest value, noise and changes, which it finds under ``of``."""

    info: SeriesInfo
    anchor: str
    name: str
    scripted: bool
    of: str
    is_drawn: bool
    now: str
    chart: str
    data: Markup
    noise: str
    last: Kind | None
    changes: tuple[ChangeRow, ...]
    borders: tuple[Commit, ...]
    points: tuple[tuple[Markup, str, str], ...]
    is_noted: bool
    left: int


def series_page(view: View, page: SeriesPage, common: Mapping[str, Any]) -> str:
    """The page of series that share one: each with its chart, noise, changes, newest values."""
    table, first = page.table, page.table.series[page.rows[0]]
    shared = {
        "unit": first.meaning.unit,
        "better": first.meaning.better or "",
        "stairs": first.meaning.exact,
    }
    scripted = is_scripted(view, page)
    if view.detail.scripted:
        shared["scripted"] = scripted
    noise: list[Noise | None] = [None] * len(page.rows)
    if not scripted:
        noise = noises(table, page.rows, view.judgement.by_series)
    sections = [
        _section(view, table, row, anchor, name, shared, found, scripted)
        for row, anchor, name, found in zip(
            page.rows, page.anchors, _names(page), noise, strict=True
        )
    ]
    return render(
        "series.html",
        **common,
        root="../",
        title=title_of(first) if len(sections) == 1 else _common_title(first),
        info=first,
        explained=sorted({table.series[row].meaning.explains for row in page.rows} - {""}),
        instrument=sampling.instrument(view, table, page.rows[0]),
        home=names.home(first.key),
        sections=sections,
        scripted=scripted,
        shared=inline(shared),
        histories=history_file(page.path),
    )


def is_scripted(view: View, page: SeriesPage) -> bool:
    """Whether a page leaves what each new point moves to the script: then the page stays as it is.

    What speaks against single values is only written where pages have them.
    """
    return view.detail.scripted and not any(
        any(sampling.said(view, page.table, row)) for row in page.rows
    )


def last_kind(view: View, table: Table, row: int) -> Kind | None:
    """Of which kind the newest change of a series is."""
    changes = view.judgement.by_series.get(table.series[row].key)
    return kind(changes[-1]) if changes else None


def _changes_of(view: View, table: Table, row: int) -> tuple[ChangeRow, ...]:
    """The rows of the table of a series' changes, the newest first."""
    unit = table.series[row].meaning.unit
    return tuple(
        ChangeRow(
            kind(change),
            words.word(change),
            view.commit(change.first_commit),
            words.quantity(change.step.before, unit),
            words.quantity(change.step.after, unit),
            words.size(change, unit),
        )
        for change in reversed(view.judgement.by_series.get(table.series[row].key, ()))
    )


def data_of(view: View, table: Table, row: int) -> dict[str, Any]:
    """The words of a series' chart that the script gets with its history."""
    key = table.series[row].key
    changes = view.judgement.by_series.get(key, ())
    return chart_data(table, row, view.address(key), changes, view.detail)


def _section(
    view: View,
    table: Table,
    row: int,
    anchor: str,
    name: str,
    shared: dict[str, Any],
    noise: Noise | None,
    scripted: bool,
) -> Section:
    info = table.series[row]
    unit = info.meaning.unit
    changes = view.judgement.by_series.get(info.key, ())
    present = table.present(row)
    newest = [] if scripted else sampling.newest(view, table, row)
    said = sampling.said(view, table, row) or ("",) * len(newest)
    data = data_of(view, table, row)
    return Section(
        info,
        anchor,
        name,
        scripted,
        data["of"],
        len(present) > 1,
        "…" if scripted else words.quantity(table.latest(row), unit),
        "" if scripted else chart_of(table, row, changes, view.detail.drawn),
        inline({name: value for name, value in data.items() if shared.get(name) != value}),
        words.noise(noise, not view.detail.intervals) if noise else "",
        last_kind(view, table, row),
        () if scripted else _changes_of(view, table, row),
        tuple(table.commits[present[index]] for index in table.borders(row)),
        tuple(
            (
                _headed(table.commits[column]),
                words.quantity(float(table.values[row, column]), unit),
                against,
            )
            for column, against in zip(newest, said, strict=True)
        ),
        any(said),
        len(present) - len(newest),
    )


@lru_cache(maxsize=256)
def _headed(commit: Commit) -> Markup:
    """The beginning of a row of values, the same in each section of the newest commits."""
    link = Markup('<th><a href="../{}">{}</a></th><td>{}</td>')
    return link.format(commit_path(commit.hash), commit.hash[:10], words.day(commit.time_s))


def _common_title(info: SeriesInfo) -> str:
    """What the series of one page have in common."""
    metric = info.meaning.metric
    return f"{metric} of {info.workload}" if metric else info.key.benchmark


def _names(page: SeriesPage) -> list[str]:
    """What tells the series of a page from each other: targets, or parameters."""
    infos = [page.table.series[row] for row in page.rows]
    targets = [info.target for info in infos]
    if all(targets) and len(set(targets)) == len(targets):
        return targets
    return [names.params(info.key) for info in infos]
