"""Commits without results; and results of commits that the clone does not have: without git, cut
short, of another branch."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.reports import trees
from tests.reports.test_judgement import changes_of, results_of, run
from warpwatch.commands.results.compare import unmeasured
from warpwatch.judge.findings.judgement import judge
from warpwatch.judge.model.commits import head
from warpwatch.judge.model.directions import Directions
from warpwatch.judge.results.assembly import assemble
from warpwatch.judge.results.strict_json import shown
from warpwatch.judge.series.changes import kind
from warpwatch.report.words import share


def test_without_git_the_dates_order_the_commits(tmp_path: Path) -> None:
    tree = trees.compiled_tree(tmp_path, {"launches": [1, 1, 2]})
    other = trees.make_repository(tmp_path / "other", 1, subjects=["unrelated"])
    history = assemble(results_of(tree), other.repo, Directions())
    assert [commit.hash for commit in history.commits] == tree.commits
    assert "knows none of the measured commits" in history.notices[-1]


def test_a_clone_that_was_cut_short_loses_no_history(tmp_path: Path) -> None:
    tree = trees.compiled_tree(tmp_path, {"launches": [1, 1, 2, 2]})
    shallow = tmp_path / "shallow"
    clone = ["git", "clone", "--quiet", "--depth", "2", tree.repo.as_uri(), str(shallow)]
    subprocess.run(clone, check=True, timeout=120)
    history = assemble(results_of(tree), shallow, Directions())
    assert [commit.hash for commit in history.commits] == tree.commits
    assert [commit.position for commit in history.commits] == [0, 1, 2, 3]
    assert "2 measured commits are older than the first commit" in history.notices[-1]
    found = [(kind(c), tree.commits.index(c.first_commit)) for c in changes_of(history)]
    assert found == [("hurt", 2)]


@pytest.mark.parametrize(("depth", "cause"), [(2, "kernel"), (4, "dependency")])
def test_an_absent_commit_may_be_the_cause(tmp_path: Path, depth: int, cause: str) -> None:
    """The commits are empty: those that git has are cleared, of the others nothing is known."""
    tree = trees.compiled_tree(tmp_path, {"launches": [1, 2, 2, 2]}, sources="kernels")
    clone = ["git", "clone", "--quiet", "--depth", str(depth), tree.repo.as_uri()]
    subprocess.run([*clone, str(tmp_path / "clone")], check=True, timeout=120)
    judgement = judge(assemble(results_of(tree), tmp_path / "clone", Directions()))
    assert [finding.cause for finding in judgement.findings] == [cause]


def test_a_commit_of_another_branch_is_left_out(tmp_path: Path) -> None:
    tree = trees.compiled_tree(tmp_path, {"launches": [1, 1, 2]})
    kept = ["git", "-C", str(tree.repo), "update-ref", "refs/heads/main", tree.commits[1]]
    subprocess.run(kept, check=True, timeout=120)
    history = assemble(results_of(tree), tree.repo, Directions(), "main")
    assert [commit.hash for commit in history.commits] == tree.commits[:2]
    assert "1 measured commits are not on the branch and are left out" in history.notices[-1]


def test_where_another_branch_has_the_commits_it_is_named(tmp_path: Path) -> None:
    tree = trees.compiled_tree(tmp_path, {"launches": [1, 1, 2]})
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.invalid"]
    for command in ("checkout -q --orphan other", "commit -q --allow-empty -mo"):
        whole = ["git", "-C", str(tree.repo), *identity, *command.split()]
        subprocess.run(whole, check=True, timeout=120)
    history = assemble(results_of(tree), tree.repo, Directions(), "other")
    assert [commit.hash for commit in history.commits] == tree.commits
    assert (
        "no measured commit is on other, but main has them: give `--branch main`"
        in (history.notices[-1])
    )


def test_a_revision_that_git_does_not_know_is_named(tmp_path: Path) -> None:
    tree = trees.make_repository(tmp_path, 1)
    place = re.escape(str(tree.repo.resolve()))
    with pytest.raises(ValueError, match=rf"^no-such-branch: no such commit in {place}$"):
        head(tree.repo, "no-such-branch")
    with pytest.raises(ValueError, match=r"^main: no such commit in .*not a git repository"):
        head(tmp_path, "main")


def test_measurements_that_lie_where_none_is_looked_for_are_named(tmp_path: Path) -> None:
    tree = trees.compiled_tree(tmp_path, {"launches": [1, 2]})
    (tree.results / "google-benchmark.json").write_text("{}")
    (tree.results / "rig" / "times.csv").write_text("a,1")
    (notice,) = results_of(tree).notices
    assert "2 files are no results of asv or pytest-benchmark" in notice
    assert "google-benchmark.json, times.csv" in notice


def test_a_relative_change_reads_as_percent_as_far_as_that_can_be_read() -> None:
    assert [share(value) for value in (0.025, 9.99, 1e39, float("inf"), float("nan"))] == [
        "2.5%",
        "999.0%",
        "only a change of more than 1000 %",
        "no change",
        "no change",
    ]


def test_a_notice_names_no_folder_of_the_machine(tmp_path: Path) -> None:
    tree = trees.make_repository(tmp_path, 2)
    tree.write_machine("rig")
    broken = tree.results / "rig" / "1234-py.json"
    broken.write_text("{")
    (notice,) = results_of(tree).notices
    assert notice.startswith("results/rig/1234-py.json: ")
    assert str(tmp_path) not in notice
    (tmp_path / ".git").mkdir()
    below = tmp_path / "below"
    tree.results.rename(below)
    assert shown(f"{below}/rig/1.json: is empty", [below]) == "below/rig/1.json: is empty"
    assert shown(f"{below}s/1.json: is empty", [below]) == f"{below}s/1.json: is empty"


def test_a_commit_without_results_is_one_line_with_the_nearest_that_has_some(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = trees.compiled_tree(tmp_path, {"launches": [1, 1, 1, 1, 1], "spilled_bytes": [0] * 5})
    first, second, third, fourth, last = tree.commits
    for commit in (second, third):
        (tree.results / "rig" / f"{commit[:8]}-env-py3.11.json").unlink()
    for base, near in ((second, first), (third, fourth)):
        assert run(tree, "compare", "--recorded", base, last) == 3
        said = capsys.readouterr().out.splitlines()
        expected = (
            f"base {base[:10]} was never measured; the nearest measured commit is {near[:10]}"
        )
        assert said[0].startswith(f"{expected} (")
        assert said[1] == f"{base[:10]} -> {last[:10]}: 2 inconclusive"
    assert run(tree, "compare", "--recorded", second, last, "--all") == 3
    assert capsys.readouterr().out.count("base was not measured here") == 2
    assert run(tree, "compare", "--recorded", first, fourth) == 0
    assert "measured commit" not in capsys.readouterr().out


def test_the_subject_of_the_nearest_commit_turns_no_terminal_red(tmp_path: Path) -> None:
    tree = trees.compiled_tree(tmp_path, {"launches": [1, 1]})
    history = assemble(results_of(tree), tree.repo, Directions())
    (table,) = history.tables
    commits = tuple(replace(one, subject="Red \x1b[31m \u202edne") for one in table.commits)
    hostile = replace(history, tables=(replace(table, commits=commits),))
    (said,) = unmeasured(hostile, tree.commits[0], "1f" * 20)
    assert said.isprintable() and said.endswith("(Red  [31m  dne)")
