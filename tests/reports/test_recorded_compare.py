"""`compare --recorded` and the comment of a pull request, over result files of commits."""

from __future__ import annotations

import datetime
import json
import math
from pathlib import Path

import pytest

from tests.reports import trees
from tests.reports.test_judgement import FAIL, history_of, run
from warpwatch import project
from warpwatch.__main__ import main
from warpwatch.judge.findings import triage
from warpwatch.judge.findings.judgement import judge
from warpwatch.judge.model import thresholds
from warpwatch.report import words


@pytest.mark.parametrize(
    ("levels", "code", "word"),
    [
        ([1, 2], 1, "regressed"),
        ([2, 1], 0, "improved"),
        ([1, 1], 0, "unchanged"),
        ([1, FAIL], 1, "missing"),
        ([1], 3, "inconclusive"),
    ],
    ids=["worse", "better", "same", "failed", "unmeasured"],
)
def test_compare_says_it_in_word_and_exit_code(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    levels: list[float | None],
    code: int,
    word: str,
) -> None:
    tree = trees.compiled_tree(tmp_path, {"launches": levels})
    if len(levels) == 1:
        tree = trees.compiled_tree(tmp_path / "second", {"launches": [1, 1]})
        (tree.results / "rig" / f"{tree.commits[1][:8]}-env-py3.11.json").unlink()
    assert run(tree, "compare", "--recorded", *tree.commits, "--json") == code
    document = json.loads(capsys.readouterr().out)
    assert [series["verdict"] for series in document["series"]] == [word]
    run(tree, "compare", "--recorded", *tree.commits)
    said = capsys.readouterr().out.splitlines()
    legend = [line for line in said if line.startswith(f"{word}: ")]
    assert len(legend) == (word == "missing"), "others say it themselves, or each line says it"


@pytest.mark.parametrize(
    ("levels", "word"),
    [([1, FAIL], "missing"), ([1, math.nan], "not applicable"), ([FAIL, 1], "improved")],
    ids=["failed", "no-longer", "mended"],
)
def test_a_report_has_the_verdict_of_the_comparison(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], levels: list[float | None], word: str
) -> None:
    tree = trees.compiled_tree(tmp_path, {"launches": levels})
    run(tree, "compare", "--recorded", *tree.commits, "--json")
    document = json.loads(capsys.readouterr().out)
    assert [series["verdict"] for series in document["series"]] == [word]
    (changes,) = judge(history_of(tree)).by_commit.values()
    assert words.each_word(changes) == word


def test_a_row_of_a_stranger_is_one_line_and_turns_no_terminal_red(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = "launches\n::error::\x1b[31m"
    tree = trees.compiled_tree(tmp_path, {"launches": [1, 2]}, metric=hostile)
    assert run(tree, "compare", "--recorded", *tree.commits) == 1
    said = capsys.readouterr().out
    _, row, *_ = said.splitlines()
    assert row.startswith("▼ regressed  1     2     launches ::error:: [31m  flash B1-H8-S512-D64")
    assert "\x1b" not in said and "\n::" not in said


@pytest.mark.parametrize("command", [("compare", "--recorded"), ("ci", "comment")])
def test_commits_come_from_the_project_where_no_repository_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    tree = trees.compiled_tree(tmp_path, {"launches": [1, 2]})
    monkeypatch.delenv(project.FILE_VARIABLE, raising=False)
    monkeypatch.chdir(tree.repo)
    assert main([*command, "--results", str(tree.results), "HEAD~1", "HEAD"]) == 1


def noisy_tree(root: Path, wander: float, last: float, version: str = "1") -> trees.Tree:
    """Twelve commits of one noisy benchmark with narrow intervals; only the last may differ."""
    tree = trees.make_repository(root, 12)
    tree.add_benchmark("bench.time_it", [["1", "2"]])
    tree.write_benchmarks()
    for commit in range(12):
        level = (last if commit == 11 else 1.0) * (1 + wander * math.sin(7.3 * commit))
        tree.write_result(commit, {"bench.time_it": [level, level]}, intervals=0.001)
    return tree


@pytest.mark.parametrize(
    ("wander", "last", "code"), [(0.0005, 1.1, 1), (0.0005, 1.0, 0), (0.05, 1.05, 3)]
)
def test_compare_knows_how_far_results_wander(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wander: float, last: float, code: int
) -> None:
    """A narrow interval within one process is no proof where processes lie apart."""
    tree = noisy_tree(tmp_path, wander, last)
    assert run(tree, "compare", "--recorded", tree.commits[10], tree.commits[11]) == code
    assert "of 2 noisy series" in capsys.readouterr().out


def test_compare_takes_the_thresholds_of_the_gate(tmp_path: Path) -> None:
    tree = trees.compiled_tree(tmp_path, {"bound_us": [100.0, 100.5]})
    assert run(tree, "compare", "--recorded", *tree.commits) == 0
    strict = "[metric.bound_us]\nrelative = 0.001"
    text = (
        thresholds.default_file().read_text().replace("[metric.bound_us]\nrelative = 0.01", strict)
    )
    (tmp_path / "t.toml").write_text(text)
    assert (
        run(tree, "compare", "--recorded", *tree.commits, "--thresholds", str(tmp_path / "t.toml"))
        == 1
    )


def test_an_accepted_finding_fails_no_comparison_until_it_expires(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = trees.compiled_tree(tmp_path, {"launches": [1, 1, 2], "spilled_bytes": [0, 0, 64]})
    (finding,) = judge(history_of(tree)).findings
    accepted = tmp_path / "triage.toml"
    # Whether midnight passes before the last line or not: today and tomorrow it holds.
    yesterday, tomorrow = (datetime.date.today() + datetime.timedelta(days) for days in (-1, 1))
    accepted.write_text("schema_version = 1\n")
    monkeypatch.setattr(triage, "default_file", lambda: accepted)
    command = ("compare", "--recorded", tree.commits[1], tree.commits[2])
    assert run(tree, *command) == 1
    said = capsys.readouterr().out
    assert said.count(f"finding {finding.identity}") == 2 and ": 2 regressed\n" in said
    assert run(tree, "ci", "comment", tree.commits[1], tree.commits[2]) == 1
    assert f"`warpwatch accept {finding.identity} --owner" in capsys.readouterr().out
    past = triage.Acceptance(
        finding.identity, "ada", "for memory", yesterday - datetime.timedelta(9), tomorrow
    )
    triage.accept(accepted, past)
    capsys.readouterr()
    assert run(tree, *command) == 0
    said = capsys.readouterr().out
    assert f"accepted by ada until {tomorrow}: for memory" in said
    assert ": 2 regressed (2 accepted)\n" in said
    assert run(tree, "ci", "comment", tree.commits[1], tree.commits[2]) == 0
    assert "regressed, `accepted by ada" in capsys.readouterr().out
    text = accepted.read_text().replace(str(tomorrow), str(yesterday))
    accepted.write_text(text)
    assert run(tree, *command) == 1


def test_the_comment_folds_what_is_only_noise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = trees.make_repository(tmp_path, 2)
    tree.add_benchmark("bench.track_launches", exact=True, metric="launches")
    tree.add_benchmark("bench.time_clear")
    tree.add_benchmark("bench.time_noisy")
    tree.add_benchmark("bench.time_warm", role="evidence", better="lower")
    tree.write_benchmarks()
    for commit, (launches, clear, noisy, warm) in enumerate(((1, 1, 1, 1), (2, 1.5, 1.02, 1.3))):
        tree.write_result(
            commit,
            {
                "bench.track_launches": [launches],
                "bench.time_clear": [clear],
                "bench.time_noisy": [noisy],
                "bench.time_warm": [warm],
            },
            cells=lambda name, values: {
                "stats_ci_99_a": [v * (0.9 if "noisy" in name else 0.999) for v in values if v],
                "stats_ci_99_b": [v * (1.1 if "noisy" in name else 1.001) for v in values if v],
            },
        )
    assert run(tree, "ci", "comment", *tree.commits) == 1
    text = capsys.readouterr().out
    shown, _, folded = text.partition("<details><summary>1 noisy metric that")
    assert shown.index("**Warpwatch: regressed") < shown.index("`launches`")
    assert "`bench.time_clear`" in shown
    assert "time_noisy" not in shown
    assert "time_warm" not in shown
    assert "◇ inconclusive" in folded
    assert "evidence, which raises no alarm: 1 value</summary>" in folded
    assert "| · evidence: worse | 1 s | 1.3 s | `bench.time_warm` |" in folded
    assert folded.rstrip().endswith("</details>")


def test_the_comment_says_what_to_do_where_nothing_is_decided(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = noisy_tree(tmp_path, 0.05, 1.05)
    assert run(tree, "ci", "comment", tree.commits[10], tree.commits[11]) == 3
    comment = capsys.readouterr().out
    pair = f"{tree.commits[10][:10]} {tree.commits[11][:10]}"
    assert f"`asv continuous {pair}`" in comment.partition("| verdict")[0]
