"""Lines that are drawn for many series at once are those that each of them has."""

from __future__ import annotations

import pytest

from tests.reports.test_glance import ragged, table
from warpwatch.judge.results.history import Table
from warpwatch.report.charts import series

__all__ = ["table"]  # a fixture


def test_lines_of_a_table_are_those_of_its_series(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = (table, ragged(table))
    places = [(one, row) for one in tables for row in range(len(one.series))]
    known = [row for one in tables for row in series._all_strokes(one, 50, series.charts.CHART)[0]]
    assert len(table.series) < len(known) < len(places)

    def drawn() -> list[tuple[str, str]]:
        return [
            (series.chart_of(*place, (), 50), str(series.spark_of(*place, (), 32)))
            for place in places
        ]

    together = drawn()
    monkeypatch.setattr(series, "_strokes", lambda *_: None)
    assert drawn() == together
