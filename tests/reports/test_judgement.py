"""From result files to verdicts: order of the graph, borders, directions, the report's command."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest

from tests.reports import trees
from warpwatch.__main__ import main
from warpwatch.judge.findings.judgement import judge
from warpwatch.judge.model.core import Change
from warpwatch.judge.model.directions import Directions, read_directions
from warpwatch.judge.results.assembly import assemble
from warpwatch.judge.results.folders import Results, list_folders, read_folders
from warpwatch.judge.results.history import History
from warpwatch.judge.results.processes import Workers
from warpwatch.judge.series.changes import at_its_level, kind, series_changes
from warpwatch.judge.series.steps import find_steps

FAIL = None
NONE = math.nan


def results_of(tree: trees.Tree) -> Results:
    with Workers(1) as workers:
        return read_folders([tree.results], list_folders([tree.results]), workers)


def history_of(tree: trees.Tree, directions: Directions | None = None) -> History:
    return assemble(results_of(tree), tree.repo, directions or Directions())


def changes_of(history: History) -> list[Change]:
    return [
        change
        for table in history.tables
        for row in range(len(table.series))
        for change in series_changes(table, row)
    ]


def judged(tree: trees.Tree) -> list[tuple[str, int]]:
    """Kind and commit number of every change."""
    changes = changes_of(history_of(tree))
    return [(kind(c), tree.commits.index(c.first_commit)) for c in changes]


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ([0, 0, 0], []),
        ([0, 0, 128, 128], [("hurt", 2)]),
        ([4, 2, 2], [("helped", 1)]),
        ([1, 2, 1], [("hurt", 1), ("helped", 2)]),
        ([1, FAIL, 1], [("lost", 1), ("gained", 2)]),
        ([NONE, NONE, 7, 7], [("gained", 2)]),
        ([7, NONE, NONE], [("lost", 1)]),
        ([NONE, FAIL], []),
    ],
    ids=["flat", "worse", "better", "recovered", "failed-once", "new", "removed", "never"],
)
def test_any_difference_of_an_exact_metric_is_a_change(
    tmp_path: Path, levels: list[float | None], expected: list[tuple[str, int]]
) -> None:
    assert judged(trees.compiled_tree(tmp_path, {"spilled_bytes": levels})) == expected


def test_more_is_better_where_the_benchmark_says_so(tmp_path: Path) -> None:
    tree = trees.compiled_tree(tmp_path, {"blocks_in_flight": [2, 1, 3]}, better="higher")
    assert judged(tree) == [("hurt", 1), ("helped", 2)]


def test_evidence_never_alarms(tmp_path: Path) -> None:
    tree = trees.compiled_tree(tmp_path, {"registers": [2, 100]}, role="evidence")
    assert judged(tree) == []


def test_a_new_benchmark_version_is_a_border(tmp_path: Path) -> None:
    tree = trees.compiled_tree(tmp_path, {"spilled_bytes": [0, 0]})
    tree.write_result(1, {"compiled.Attention.track_spilled_bytes": [64.0]}, version="2")
    history = history_of(tree)
    assert changes_of(history) == []
    assert history.tables[0].model(0).borders == (1,)


def test_a_driver_is_a_border_and_memory_is_not(tmp_path: Path) -> None:
    tree = trees.make_repository(tmp_path, 4)
    tree.add_benchmark("bench.track_it", exact=True)
    tree.write_benchmarks()
    machines = [{"ram": "1"}, {"ram": "2"}, {"ram": "2", "driver": "9"}, {"driver": "9"}]
    for commit, fields in enumerate(machines):
        tree.write_result(commit, {"bench.track_it": [float(commit)]}, machine_fields=fields)
    history = history_of(tree)
    assert len(history.tables) == 1
    assert history.tables[0].model(0).borders == (2,)
    assert [tree.commits.index(c.first_commit) for c in changes_of(history)] == [1, 3]


def test_compiled_results_of_two_machines_are_one_series(tmp_path: Path) -> None:
    tree = trees.compiled_tree(tmp_path, {"launches": [1, 1, 2]})
    tree.write_result(2, {"compiled.Attention.track_launches": [2.0]}, machine="other")
    history = history_of(tree)
    assert [table.machine for table in history.tables] == [""]
    assert judged(tree) == [("hurt", 2)]


@pytest.mark.parametrize(
    ("levels", "kind_of", "at"),
    [
        # Measured on an H200: one commit far faster, then all slower than before.
        ([64.5, 63.9, 64.6, 64.6, 64.7, 51.4, 77.4, 77.6, 79.8, 80.2, 80.3], "hurt", 6),
        # The new level itself moves: its median lies far from where it began.
        ([6661, 6675, 6668, 6667, 6662, 6465, 1920, 1917, 2320, 2326, 2321], "helped", 6),
    ],
    ids=["after-a-fast-one", "between-two-levels"],
)
def test_no_commit_is_named_whose_own_value_denies_it(
    tmp_path: Path, levels: list[float], kind_of: str, at: int
) -> None:
    tree = trees.make_repository(tmp_path, len(levels))
    tree.add_benchmark("bench.time_it")
    tree.write_benchmarks()
    for commit, level in enumerate(levels):
        tree.write_result(commit, {"bench.time_it": [level]})
    assert judged(tree) == [(kind_of, at)]
    (finding,) = judge(history_of(tree)).findings
    assert finding.since == tree.commits[at]
    # A range that the measured folder narrows to others names one of them.
    assert dataclasses.replace(finding, commits=tuple(tree.commits[:3])).since == tree.commits[2]


def test_measured_noise_is_quiet_and_a_step_is_named(tmp_path: Path) -> None:
    tree = trees.make_repository(tmp_path, 40)
    tree.add_benchmark("bench.time_steady")
    tree.add_benchmark("bench.time_stepped")
    tree.write_benchmarks()
    for commit in range(40):
        noise = 1 + 0.01 * math.sin(7.3 * commit)
        level = 1.2 if commit >= 25 else 1.0
        tree.write_result(
            commit, {"bench.time_steady": [noise], "bench.time_stepped": [level * noise]}
        )
    assert judged(tree) == [("hurt", 25)]


@pytest.mark.parametrize(
    ("unit", "better"),
    [
        ("seconds", "lower"),
        ("TFLOP/s", "higher"),
        ("GB/s", "higher"),
        ("tokens/s", "higher"),
        ("MiB/s", "higher"),
        ("bytes", "lower"),
        ("% of peak (higher)", "higher"),
        ("s/op", "lower"),
        ("", "lower"),
    ],
)
def test_directions_from_units(tmp_path: Path, unit: str, better: str) -> None:
    tree = trees.make_repository(tmp_path, 1)
    tree.add_benchmark("bench.track_it", unit=unit)
    tree.write_benchmarks()
    tree.write_result(0, {"bench.track_it": [1.0]})
    assert history_of(tree).tables[0].series[0].meaning.better == better


def test_a_project_can_say_directions_in_toml(tmp_path: Path) -> None:
    (tmp_path / "d.toml").write_text(
        '[benchmarks]\n"*.track_x" = "higher"\n[units]\nfoo = "lower"\n'
    )
    directions = read_directions(tmp_path / "d.toml")
    assert dict(directions.benchmarks) == {"*.track_x": "higher"}
    (tmp_path / "d.toml").write_text('[benchmark]\n[units]\nfoo = "up"\nbar = 3\n')
    with pytest.raises(ValueError, match=r"\[benchmark\] is unknown.*foo.*bar"):
        read_directions(tmp_path / "d.toml")
    (tmp_path / "d.toml").write_text('[weights]\n"llm-*" = 10\n')
    weighed = read_directions(tmp_path / "d.toml")
    assert [weighed.weight_of(name) for name in ("llm-decode", "other")] == [10, 1]
    (tmp_path / "d.toml").write_text('[weights]\nx = "much"\ny = -1\n')
    with pytest.raises(ValueError, match=r"'x': expected a number.*'y': expected a number"):
        read_directions(tmp_path / "d.toml")


def run(tree: trees.Tree, *arguments: str) -> int:
    words = 2 if arguments[0] == "ci" else 1
    folders = ("--results", str(tree.results), "--repo", str(tree.repo))
    return main([*arguments[:words], *folders, *arguments[words:]])


def test_build_names_the_commit_that_hurt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = trees.compiled_tree(tmp_path, {"spilled_bytes": [0, 0, 128], "launches": [3, 1, 1]})
    assert run(tree, "report", "--out", str(tmp_path / "html")) == 0
    document = json.loads((tmp_path / "html/regressions.json").read_text())
    assert {(f["verdict"], *f["commits"]) for f in document["findings"]} == {
        ("regressed", tree.commits[2]),
        ("improved", tree.commits[1]),
    }
    page = (tmp_path / f"html/c/{tree.commits[2][:12]}.html").read_text()
    assert "▼ regressed" in page
    assert "from 0 to 128" in page
    assert str(tmp_path / "html/index.html") in capsys.readouterr().out


def test_build_never_replaces_a_folder_that_is_not_a_report(tmp_path: Path) -> None:
    tree = trees.compiled_tree(tmp_path, {"launches": [1]})
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("years of work")
    assert run(tree, "report", "--out", str(tmp_path / "mine")) == 2
    assert (tmp_path / "mine/thesis.txt").read_text() == "years of work"


def test_the_quick_look_hides_no_step(tmp_path: Path) -> None:
    """Series are first looked at quickly; what the judge finds in full must pass that look."""
    tree = trees.large_tree(
        tmp_path, commits=300, homes=[("rig", "py3.11")], benchmarks=4, params=[10], seed=11
    )
    table = history_of(tree).tables[0]
    for row in range(len(table.series)):
        quick = [change.step.index for change in series_changes(table, row)]
        found = find_steps(table.values[row].tolist())
        assert quick == [at_its_level(step, table.values[row]).index for step in found]


def test_a_benchmark_that_one_commit_left_out_shifts_no_other(tmp_path: Path) -> None:
    # Its rows are then not neighbours in the table, and the file alone in its layout.
    tree = trees.compiled_tree(tmp_path, {"launches": [1, 1], "spilled_bytes": [8, 8], "z": [5, 5]})
    names = {f"compiled.Attention.track_{metric}": [value] for metric, value in
             (("launches", 2.0), ("z", 6.0))}  # fmt: skip
    tree.write_result(1, names)
    (table,) = history_of(tree).tables
    found = {
        info.meaning.metric: list(row) for info, row in zip(table.series, table.values, strict=True)
    }
    assert found["launches"] == [1.0, 2.0]
    assert found["z"] == [5.0, 6.0]
    assert found["spilled_bytes"][0] == 8.0
    assert not math.isfinite(found["spilled_bytes"][1])
