"""A workload's series on one machine: metrics by targets, and what is read side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from warpwatch.judge.model import names
from warpwatch.judge.results.history import Table
from warpwatch.judge.series.addresses import short_address
from warpwatch.judge.series.changes import Kind, kind
from warpwatch.report import words
from warpwatch.report.charts.data import inline
from warpwatch.report.charts.series import chart_of, is_flat
from warpwatch.report.charts.svg import EMPTY, EMPTY_SPARK
from warpwatch.report.rendering import machine_path
from warpwatch.report.view import View

from . import peers
from .series import data_of

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
    drawn, scripted = [], view.detail.scripted
    for metric in sorted(found, key=TOGETHER.index):
        table, row = found[metric]
        key = table.series[row].key
        changes = view.judgement.by_series.get(key, ())
        drawn.append(
            Drawn(
                f"{metric}, {key.machine}",
                view.address(key),
                EMPTY if scripted else chart_of(table, row, changes, view.detail.drawn),
                inline(data_of(view, table, row)),
            )
        )
    return drawn


@dataclass(frozen=True)
class Cell:
    """One series in a table: its newest value, its last change (kind, size and commit), and a line.
    The script writes value and size where the cell is ``scripted``."""

    path: str
    scripted: str
    now: str
    last: tuple[Kind, str, str] | None
    spark: Markup


@dataclass(frozen=True)
class Grid:
    """One table of a workload's page; empty cells are series that do not exist."""

    name: str
    path: str
    identity: str
    heading: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell | None, ...]], ...]


def workload_grid(view: View, home: tuple[str, str], members: list[tuple[Table, int]]) -> Grid:
    """``members`` are series of one machine and environment."""
    found: dict[str, dict[str, Cell]] = {}
    columns: dict[str, None] = {}
    judged = set()  # peers' values are evidence, where ours are judged
    for table, row in members:
        info = table.series[row]
        metric = info.meaning.metric or info.key.benchmark
        if info.meaning.metric:
            line, column = metric, info.target or OWN
        else:
            line, column = names.params(info.key) or info.key.benchmark, metric
        if info.meaning.role != "evidence":
            judged.add(line)
        columns[column] = None
        found.setdefault(line, {})[column] = _cell(view, table, row)
    ordered = sorted(found, key=lambda line: line not in judged)
    path = machine_path(*home)
    return Grid(
        " / ".join(filter(None, home)),
        path,
        path[2:-5],
        "metric" if members[0][0].series[members[0][1]].meaning.metric else "parameters",
        tuple("value" if len(columns) == 1 else column for column in columns),
        tuple((line, tuple(found[line].get(column) for column in columns)) for line in ordered),
    )


def grid_of(view: View, home: tuple[str, str], members: list[tuple[Table, int]]) -> dict[str, Any]:
    """All that ``grid.html`` shows of the series of one machine and environment."""
    return {
        "root": "../",
        "home": workload_grid(view, home, members),
        "rates": peers.rates(members),
        "race": peers.race(view, members),
        "memory": peers.memory(members),
        "ours": OWN,
    }


def _cell(view: View, table: Table, row: int) -> Cell:
    info = table.series[row]
    changes = view.judgement.by_series.get(info.key, ())
    last = changes[-1] if changes else None
    path, scripted = view.address(info.key), view.detail.scripted
    return Cell(
        path,
        short_address(path) if scripted else "",
        "…" if scripted else words.quantity(table.latest(row), info.meaning.unit),
        (
            kind(last),
            "" if scripted else words.size(last, info.meaning.unit),
            last.first_commit[:10],
        )
        if last
        else None,
        # What never moved needs no picture.
        Markup("") if is_flat(table, row) else EMPTY_SPARK if scripted else view.spark(info.key),
    )
