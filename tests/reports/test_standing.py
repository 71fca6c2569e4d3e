"""Which findings are open: what recovered, or came back, also behind a border, alarms no more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.reports import trees
from tests.reports.test_judgement import FAIL, NONE, history_of
from warpwatch.judge.findings.judgement import Judgement, judge
from warpwatch.report.view import View

LAUNCHES, SPILLS = "compiled.Attention.track_launches", "compiled.Attention.track_spilled_bytes"


def judgement_of(tree: trees.Tree) -> Judgement:
    return judge(history_of(tree))


def statuses(tree: trees.Tree) -> list[str]:
    judgement = judgement_of(tree)
    return [judgement.status(one) for one in judgement.findings]


@pytest.mark.parametrize("gone", [FAIL, NONE], ids=["failed", "removed"])
def test_what_is_back_behind_a_border_is_open_no_longer(tmp_path: Path, gone: float | None) -> None:
    tree = trees.compiled_tree(tmp_path, {"launches": [1, gone, gone]})
    assert statuses(tree) == ["open"]
    tree.write_result(2, {LAUNCHES: [1.0]}, version="2")
    assert judgement_of(tree).history.tables[0].borders(0) == (2,)
    assert statuses(tree) == ["recovered"]


@pytest.mark.parametrize(
    ("level", "status"),
    [(10.0, "recovered"), (8.0, "recovered"), (19.0, "open"), (FAIL, "open")],
    ids=["as-before", "better", "still-worse", "unknown"],
)
def test_what_got_worse_before_a_border_is_held_against_what_is_behind_it(
    tmp_path: Path, level: float | None, status: str
) -> None:
    tree = trees.compiled_tree(tmp_path, {"launches": [10, 20, 20, 20]})
    assert statuses(tree) == ["open"]
    for commit in (2, 3):
        tree.write_result(commit, {LAUNCHES: [level]}, version="2")
    assert statuses(tree) == [status]


def test_a_failure_is_a_finding_of_its_own_and_loses_no_time(tmp_path: Path) -> None:
    levels = {"launches": [1, FAIL, 1], "spilled_bytes": [64, 128, 128]}
    tree = trees.compiled_tree(tmp_path / "mended", levels)
    judgement = judgement_of(tree)
    slower, lost = judgement.findings
    assert (slower.kind, slower.verdict, judgement.status(slower)) == (
        "slower",
        "regressed",
        "open",
    )
    assert (lost.kind, lost.verdict, judgement.status(lost)) == ("lost", "missing", "recovered")
    assert slower.cost > 0 == lost.cost
    view = View(judgement)
    assert (view.attention, view.failing) == ([slower], [])
    assert view.verdict_line.endswith("1 series change for the worse at 1 commit")

    gone = trees.compiled_tree(tmp_path / "lost", {**levels, "launches": [1, FAIL, FAIL]})
    view = View(judgement_of(gone))
    # Somebody may have accepted it by its name.
    assert [one.identity for one in view.attention] == [slower.identity]
    assert [one.identity for one in view.failing] == [lost.identity]
    assert view.verdict_line.endswith("at 1 commit; 1 series without a value any more")


def test_what_was_lost_again_is_open_once(tmp_path: Path) -> None:
    tree = trees.compiled_tree(tmp_path, {"launches": [1, 1, 1, 1, FAIL, 1, 1, 1, 1, FAIL]})
    judgement = judgement_of(tree)
    places = {tree.commits.index(one.since): judgement.status(one) for one in judgement.findings}
    assert places == {4: "recovered", 9: "open"}


def test_a_benchmark_that_fails_now_and_then_is_one_finding(tmp_path: Path) -> None:
    values = [FAIL if commit in (3, 6, 9) else 1 for commit in range(12)]
    tree = trees.compiled_tree(tmp_path, {"launches": values})
    judgement = judgement_of(tree)
    (one,) = judgement.findings
    assert (one.kind, one.cost, len(one.changes)) == ("flaky", 0.0, 3)
    assert judgement.status(one) == "recovered"
    longer = trees.compiled_tree(tmp_path / "longer", {"launches": [*values, FAIL]})
    judgement = judgement_of(longer)
    (again,) = judgement.findings
    assert (again.identity, judgement.status(again)) == (one.identity, "open")


def test_a_commit_at_which_everything_failed_is_one_finding(tmp_path: Path) -> None:
    tree = trees.make_repository(tmp_path, 6)
    tree.add_benchmark("bench.track_size", [[str(n) for n in range(20)]], exact=True)
    tree.write_benchmarks()
    tree.write_machine("rig")
    for commit in range(6):
        failed = commit in (1, 3, 5)  # no series is flaky for it
        tree.write_result(commit, {"bench.track_size": [FAIL if failed else 1.0] * 20})
    judgement = judgement_of(tree)
    found = [(one.kind, len(one.changes), judgement.status(one)) for one in judgement.findings]
    assert sorted(found) == [
        ("failed build", 20, "open"),
        ("failed build", 20, "recovered"),
        ("failed build", 20, "recovered"),
    ]


def test_what_changed_long_ago_is_open_but_asks_nobody(tmp_path: Path) -> None:
    tree = trees.compiled_tree(tmp_path, {"launches": [1, 2, 2], "spilled_bytes": [0, 0, 8]})
    judgement = judgement_of(tree)
    old = replace(judgement.history.commits[1], time_s=judgement.history.commits[1].time_s - 10**9)
    commits = (judgement.history.commits[0], old, judgement.history.commits[2])
    view = View(replace(judgement, history=replace(judgement.history, commits=commits)))
    assert [len(part) for part in (view.attention, view.older)] == [1, 1]
    assert view.older[0].changes[0].series.benchmark == LAUNCHES
    assert view.verdict_line.endswith("1 older finding open still")
