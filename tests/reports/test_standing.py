"""Which findings are open: what recovered, or came back, also behind a border, alarms no more."""

from __future__ import annotations

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


def test_a_finding_tells_what_is_open_of_it_first(tmp_path: Path) -> None:
    """A failure weighs more than any number; once mended it is neither verdict nor cost."""
    levels = {"launches": [1, FAIL, 1], "spilled_bytes": [64, 128, 128]}
    tree = trees.compiled_tree(tmp_path / "mended", levels)
    judgement = judgement_of(tree)
    (finding,) = judgement.findings
    assert (finding.verdict, judgement.status(finding)) == ("regressed", "open")
    assert [change.series.benchmark for change in finding.changes] == [SPILLS, LAUNCHES]
    view = View(judgement)
    assert view.headline(finding).endswith(", 1 more recovered")
    assert "1 finding to look at: 1 series change for" in view.verdict_line

    lost = trees.compiled_tree(tmp_path / "lost", {**levels, "launches": [1, FAIL, FAIL]})
    (before,) = judgement_of(lost).findings
    # Somebody may have accepted it by its name.
    assert (before.verdict, before.identity) == ("missing", finding.identity)
    assert 0 < finding.cost < before.cost
