"""A workload's series on one machine: metrics by targets, and what is read side by side."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from reports.history import Table
from reports.model import SeriesKey
from reports.pages import words
from reports.pages.data import inline
from reports.pages.rendering import machine_path, series_path
from reports.pages.series_pages import chart_data, chart_of
from reports.pages.view import View

OWN = "this package"  # the column beside those of peers
# What is read together: caches clear and warm, cycles that know no clock, what the cores did.
TOGETHER = ("latency_cold", "latency_warm", "sm_cycles", "tensor_pipe")


@dataclass(frozen=True)
class Drawn:
    """One of several charts of the same commits."""

    title: str
    path: str
    chart: str
    data: Markup


def side_by_side(view: View, members: list[tuple[Table, int]]) -> list[Drawn]:
    """Charts of cold and warm, cycles and tensor cores of one machine; none where it has one."""
    found: dict[str, tuple[Table, int]] = {}
    for table, row in members:
        info = table.series[row]
        if not info.target and info.meaning.metric in TOGETHER and len(table.present(row)) > 1:
            found.setdefault(info.meaning.metric, (table, row))
    if len(found) < 2:
        return []
    drawn = []
    for metric in sorted(found, key=TOGETHER.index):
        table, row = found[metric]
        key = table.series[row].key
        changes = view.judgement.by_series.get(key, ())
        columns = tuple(view.measured[commit.hash] for commit in table.commits)
        drawn.append(
            Drawn(
                f"{metric}, {key.machine}",
                series_path(key),
                chart_of(table, row, changes, view.detail.drawn),
                inline(chart_data(table, row, columns, changes, view.detail.intervals)),
            )
        )
    return drawn


@dataclass(frozen=True)
class Grid:
    """One table of a workload's page; empty cells are series that do not exist."""

    name: str
    path: str
    identity: str
    heading: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Markup, ...]], ...]


def workload_grid(
    home: tuple[str, str], members: list[tuple[Table, int]], cells: dict[SeriesKey, str]
) -> Grid:
    """``members`` are series of one machine and environment, ``cells`` their rendered values."""
    found: dict[str, dict[str, Markup]] = {}
    columns: dict[str, None] = {}
    evidence = set()
    for table, row in members:
        info = table.series[row]
        metric = info.meaning.metric or info.key.benchmark
        if info.meaning.metric:
            line, column = metric, info.target or OWN
        else:
            line, column = words.params(info.key) or info.key.benchmark, metric
        if info.meaning.role == "evidence":
            evidence.add(line)
        columns[column] = None
        # Rendered with escaping when the series was drawn.
        found.setdefault(line, {})[column] = Markup(cells[info.key])
    ordered = sorted(found, key=lambda line: line in evidence)
    path = machine_path(*home)
    return Grid(
        " / ".join(filter(None, home)),
        path,
        path[2:-5],
        "metric" if members[0][0].series[members[0][1]].meaning.metric else "parameters",
        tuple("value" if len(columns) == 1 else column for column in columns),
        tuple(
            (line, tuple(found[line].get(column, Markup("")) for column in columns))
            for line in ordered
        ),
    )
