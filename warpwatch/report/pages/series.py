"""The pages of series: what one benchmark measures of one workload, a section a series."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from markupsafe import Markup

from warpwatch.judge.model import names
from warpwatch.judge.model.core import Change, Commit
from warpwatch.judge.results.history import SeriesInfo, Table
from warpwatch.judge.series.addresses import SeriesPage, history_file
from warpwatch.judge.series.noise import Noise
from warpwatch.report import words
from warpwatch.report.charts.data import inline
from warpwatch.report.charts.series import chart_data, chart_of, noises, title_of
from warpwatch.report.rendering import commit_path, render
from warpwatch.report.view import View

from . import sampling


@dataclass(frozen=True)
class Section:
    """One series of a page."""

    info: SeriesInfo
    anchor: str
    name: str
    now: str
    chart: str
    data: Markup
    noise: str
    changes: tuple[tuple[Change, Commit], ...]
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
    noise = noises(table, page.rows, view.judgement.by_series)
    sections = [
        _section(view, table, row, anchor, name, shared, found)
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
        shared=inline(shared),
        histories=history_file(page.path),
    )


def _section(
    view: View,
    table: Table,
    row: int,
    anchor: str,
    name: str,
    shared: dict[str, Any],
    noise: Noise | None,
) -> Section:
    info = table.series[row]
    unit = info.meaning.unit
    changes = view.judgement.by_series.get(info.key, ())
    present = table.present(row)
    newest = sampling.newest(view, table, row)
    said = sampling.said(view, table, row) or ("",) * len(newest)
    data = chart_data(table, row, view.address(info.key), changes, view.detail.intervals)
    return Section(
        info,
        anchor,
        name,
        words.quantity(table.latest(row), unit),
        chart_of(table, row, changes, view.detail.drawn),
        inline({name: value for name, value in data.items() if shared.get(name) != value}),
        words.noise(noise, not view.detail.intervals) if noise else "",
        tuple((change, view.commit(change.first_commit)) for change in reversed(changes)),
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
