"""Who is passed over at a glance has no step by the exact look."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.reports import trees
from tests.reports.test_judgement import history_of
from tools.root import ROOT
from warpwatch.judge.results.history import Table
from warpwatch.judge.results.processes import Workers
from warpwatch.judge.results.result_file import ABSENT, FAILED
from warpwatch.judge.series.changes import series_changes
from warpwatch.judge.series.glance import certainly_steady
from warpwatch.judge.series.incremental import judge_tables
from warpwatch.judge.series.steps import find_steps
from warpwatch.report.builder import Sources, load


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Noise of every kind over 150 commits, steps of every size among it."""
    rng = np.random.default_rng(5)
    tree = trees.make_repository(tmp_path_factory.mktemp("glance"), 150)
    tree.add_benchmark("bench.time_it", [[str(number) for number in range(300)]])
    tree.write_benchmarks()
    tree.write_machine("rig")
    values = np.exp(rng.normal(0, 0.01, (300, 150)))
    values[50:100] = np.round(values[50:100], 2)
    values[100:150] *= np.exp(np.cumsum(rng.normal(0, 0.003, (50, 150)), axis=1))
    values[150:200, 70:] *= np.linspace(1.0, 1.04, 50)[:, None]
    values[200:220] = np.where(rng.random((20, 150)) < 0.3, 1.05, 1.0) * values[200:220]
    values[220:230, 60:66] *= 1.02
    for commit in range(150):
        tree.write_result(commit, {"bench.time_it": values[:, commit].tolist()})
    (found,) = history_of(tree).tables
    return found


def test_nothing_that_holds_a_step_is_passed_over(table: Table) -> None:
    rows = range(len(table.series))
    steady = certainly_steady(table, rows)
    changed = {row for row in rows if find_steps(table.values[row])}
    assert not steady & changed
    assert len(changed) > 30
    assert len(steady & set(range(50))) > 30  # and most of plain noise is


def ragged(table: Table) -> Table:
    """The same with gaps and failures in some series, and borders in others."""
    rng = np.random.default_rng(6)
    values, methods = table.values.copy(), table.methods.copy()
    values[::3][rng.random(values[::3].shape) < 0.15] = ABSENT
    values[1::7][rng.random(values[1::7].shape) < 0.03] = FAILED
    methods[::5, 60:] += 1
    methods[::10, 110:] += 1
    return replace(table, values=values, methods=methods)


def test_a_history_is_judged_as_each_of_its_series(table: Table) -> None:
    published = load(Sources((ROOT / "reports/published",), ROOT)).tables
    for tables, least in (([table, ragged(table)], 300), (published, 200)):
        with Workers(1) as workers:
            judged = [judge_tables([one], {}, workers) for one in tables]
        found = 0
        for one, together in zip(tables, judged, strict=True):
            for row, info in enumerate(one.series):
                changes = together[info.key].changes
                # As text: what is missing is equal to nothing.
                assert repr(changes) == repr(tuple(series_changes(one, row)))
                found += len(changes)
        assert found > least


@pytest.mark.parametrize("value", [np.nan, FAILED, ABSENT, 0.0, -1.0])
def test_what_is_no_plain_history_is_left_to_the_exact_look(table: Table, value: float) -> None:
    row = min(certainly_steady(table, range(50)))
    values = table.values.copy()
    values[row, 20] = value
    assert certainly_steady(replace(table, values=values), [row]) == set()
    methods = table.methods.copy()
    methods[row, 75:] += 1
    assert certainly_steady(replace(table, methods=methods), [row]) == set()
    assert certainly_steady(table, [row]) == {row}
