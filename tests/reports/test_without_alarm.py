"""What changed and opens no finding is said on the page of the commit, and no page denies it."""

from __future__ import annotations

from pathlib import Path

from tests.reports import trees
from tests.reports.trees import said_on
from warpwatch.report.rendering import commit_path

CALL = "flash B1-H8-S512-D64 @ sm_90"


def test_values_that_raise_no_alarm_are_listed_where_they_changed(tmp_path: Path) -> None:
    levels: dict[str, list[float | None]] = {
        "launches": [1.0, 1.0, 1.0, 2.0],
        "registers": [32.0, 32.0, 14.0, 14.0],
    }
    tree = trees.compiled_tree(tmp_path, levels)
    tree.benchmarks["compiled.Attention.track_registers"] |= {"better": "", "role": "evidence"}
    tree.write_benchmarks()
    site = trees.build_site(tree, tmp_path / "html")
    _, same, quiet, worse = (said_on(site / commit_path(one)) for one in tree.commits)
    none = "No measured value that raises an alarm changed at this commit by enough to count"
    assert none in same and "Exact values" not in same
    assert none in quiet
    assert "Exact values that changed and raise no alarm: 1 what before after change" in quiet
    assert f"registers of {CALL} 32 14 -56.2 %" in quiet
    # What opens a finding is listed with it.
    assert none not in worse and "Exact values" not in worse


def test_a_commit_without_a_value_is_not_said_to_be_unchanged(tmp_path: Path) -> None:
    tree = trees.compiled_tree(tmp_path, {"launches": [None, None]})
    site = trees.build_site(tree, tmp_path / "html", code=3)
    page = said_on(site / commit_path(tree.commits[1]))
    assert "nothing was measured at this commit" in page and "raises an alarm" not in page
