"""What scripts of the site look up: commits, series, values by commit and by series."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from warpwatch.judge.findings.judgement import Judgement
from warpwatch.judge.model import names
from warpwatch.judge.model.core import SeriesKey
from warpwatch.judge.results.history import Table
from warpwatch.judge.results.result_file import ABSENT, FAILED
from warpwatch.judge.series.addresses import SeriesPage, short_address
from warpwatch.judge.series.withheld import withheld_at

from . import words
from .charts.data import spans
from .charts.series import history_data, noises, scripted_data
from .rendering import machine_path, workload_path
from .view import View

_BEGIN = '"use strict";(globalThis.WW??={}).'
_written = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def values_at(name: str, columns: Sequence[tuple[Table, int | None]]) -> str:
    values = [
        _short(float(table.values[row, column])) if column is not None else None
        for table, column in columns
        for row in range(len(table.series))
    ]
    return script(name, {"values": values})


def _short(value: float) -> float | str | None:
    """A value in few characters; failed and not applicable as in the charts' data."""
    if value == ABSENT:
        return None
    if not np.isfinite(value):
        return "f" if value == FAILED else "s"
    return value if value == int(value) and abs(value) < 1e9 else float(f"{value:.5g}")


def commits(judgement: Judgement) -> dict[str, Any]:
    column_of = {c.hash: i for i, c in enumerate(judgement.history.measured)}
    return {
        "commits": [
            [c.hash[:12], words.day(c.time_s), c.subject[:80], c.author[:40]]
            for c in judgement.history.measured
        ],
        "tables": {
            table_name(t): spans([column_of[c.hash] for c in t.commits])
            for t in judgement.history.tables
        },
    }


def search(judgement: Judgement, view: View) -> dict[str, Any]:
    return {
        "workloads": [[name, workload_path(name)[2:-5]] for name in sorted(judgement.workloads)],
        "series": [
            [
                view.title(info),
                names.home(info.key),
                short_address(view.address(info.key)),
                info.meaning.unit,
                # What the comparison judges by: exact, direction, and where it changed or may not
                # be compared across. Nothing but these makes a verdict there.
                int(info.meaning.exact),
                (info.meaning.better or "") if info.meaning.role == "verdict" else "",
                [
                    [view.measured[change.first_commit], change.verdict]
                    for change in judgement.by_series.get(info.key, ())
                ],
                [
                    view.measured[commit]
                    for commit in (*table.border_commits(row), *withheld_at(table, row))
                ],
            ]
            for table in judgement.history.tables
            for row, info in enumerate(table.series)
        ],
    }


def script(name: str, content: dict[str, Any]) -> str:
    """Data as a script, because a page opened from a file may not fetch. ASCII only."""
    return f"{_BEGIN}{name}={_written(content)};\n"


def histories(name: str, pages: Sequence[str]) -> str:
    """The script with the ``page_histories`` of some pages."""
    return f'{_BEGIN}{name}={{"histories":{{{",".join(pages)}}}}};\n'


def page_histories(
    view: View, page: SeriesPage, newest: Callable[[Table], Mapping[SeriesKey, Sequence[str]]]
) -> str:
    """The histories of the series on one page, by their anchors.

    Of a site that leaves its pages to the script also the ``newest`` words of each, and all else
    that is drawn or listed of it.
    """
    table, found = page.table, {}
    at: Any = None  # most series of a page were measured at the same commits
    for row, anchor in zip(page.rows, page.anchors, strict=True):
        history: Any = history_data(table, row, view.columns(table))
        at = history[0] if at is None else at
        history = (0 if history[0] == at else history[0], history[1])
        if view.detail.scripted:
            key = table.series[row].key
            changes = view.judgement.by_series.get(key, ())
            history = (*history, *newest(table)[key], *scripted_data(table, row, changes))
        found[anchor] = history
    content = _written({"table": table_name(table), "at": at, "series": found})
    return f"{_written(short_address(page.path))}:{content}"


def table_name(table: Table) -> str:
    """What scripts know a table by."""
    return machine_path(table.machine, table.environment)[2:-5]


def newest_words(
    view: View, pages: Iterable[SeriesPage], table: Table
) -> dict[SeriesKey, tuple[str, str]]:
    """Words for the newest value and for the noise of the series of a table on some pages: to look
    at them together takes a fraction of the time."""
    rows = [row for page in pages if page.table is table for row in page.rows]
    return {
        table.series[row].key: (
            words.quantity(table.latest(row), table.series[row].meaning.unit),
            words.noise(noise, not view.detail.intervals) if noise else "",
        )
        for row, noise in zip(rows, noises(table, rows, view.judgement.by_series), strict=True)
    }
