"""What a finding and a comparison of recorded commits say of predicted times."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.reports import keeping, trees
from tests.reports.trees import said_on
from warpwatch.__main__ import main
from warpwatch.judge.evidence.lookup import Evidence
from warpwatch.judge.findings.judgement import judge_folders
from warpwatch.judge.pairs.commits import compare
from warpwatch.report.rendering import commit_path

PLACE = ("flash B1-H8-S512-D64", "sm_90")
TRITON = "3.7.1"


def name_triton(tree: trees.Tree) -> None:
    """Its results are of the Triton whose evidence lies next to them."""
    for result in tree.results.glob("rig/*.json"):
        text = result.read_text()
        said = f'"requirements": {{"triton": "{TRITON}"'
        result.write_text(text.replace('"requirements": {', said))


BOUND: Sequence[float | None] = (10.0, 10.0, 20.0, 20.0)


def tree_of(
    folder: Path,
    *us: float,
    checked: bool = True,
    bound: Sequence[float | None] = BOUND,
    registers: Sequence[float | None] = (),
) -> trees.Tree:
    """Four commits of which the third doubles the bound; each with a predicted time."""
    levels = {"bound_us": [*bound], "registers": [*registers]}
    tree = trees.compiled_tree(folder, {name: level for name, level in levels.items() if level})
    if registers:
        name = "compiled.Attention.track_registers"
        tree.benchmarks[name] |= {"better": "", "role": "evidence"}
    tree.write_benchmarks()
    name_triton(tree)
    write_times(tree, *us, checked=checked)
    return tree


def write_times(tree: trees.Tree, *us: float, checked: bool = True) -> None:
    for commit, one in zip(tree.commits, us, strict=True):
        predicted = {
            "clocks": 1000 * one,
            "us": one,
            "limited_by": "tensor",
            "sure": True,
            "parts": {"tensor": 1000 * one},
            "idle": 0,
            "checked": checked,
        }
        recorded = {"predicted": [predicted], "model": "m", "torch_us": 0.0}
        keeping.write_compiled(tree.results, commit, TRITON, {PLACE: [str(one)]}, recorded=recorded)


@pytest.mark.parametrize(
    ("after", "word", "verdict"),
    [
        (180.0, "regressed", "regressed"),
        (50.0, "improved", "improved"),
        (100.5, "inconclusive", ""),
    ],
)
def test_a_finding_has_the_verdict_of_the_predicted_time(
    tmp_path: Path, after: float, word: str, verdict: str
) -> None:
    tree = tree_of(tmp_path, 100.0, 100.0, after, after)
    judgement = judge_folders([tree.results], tree.repo)
    (finding,) = judgement.findings
    begins = f"{word}, {PLACE[0]} on sm_90: the call is predicted to take 100.0 -> {after:.1f} us"
    assert finding.predicted.startswith(begins)
    evidence = Evidence([tree.results])
    compared = compare(judgement.history, tree.commits[0], tree.commits[3], evidence)
    said = {one.series.meaning.metric: one for one in compared}
    bound, time = said["bound_us"], said["predicted_us"]
    if verdict:
        assert (time.verdict, time.series.meaning.role) == (verdict, "verdict")
        assert bound.series.meaning.role == "evidence"
    else:
        assert (bound.verdict, bound.series.meaning.role) == ("inconclusive", "verdict")
        assert time.series.meaning.role == "evidence"


def test_labels_of_a_comparison_agree_with_its_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Evidence has no verdict: it is neither unchanged nor a regression of its own."""
    tree = tree_of(tmp_path, 100.0, 100.0, 180.0, 180.0, registers=[32, 32, 14, 14])
    where = ["--results", str(tree.results), "--repo", str(tree.repo)]
    command = ["compare", "--recorded", *where, tree.commits[1], tree.commits[2]]
    assert main([*command, "--all"]) == 1
    heads, *rows, counts, evidence, _ = capsys.readouterr().out.splitlines()
    places = [heads.index(name) for name in ("verdict", "base", "metric", "of")]
    labels = {row[places[2] : places[3]].strip(): row[: places[1]].strip() for row in rows}
    assert labels == {
        "predicted_us": "▼ regressed",
        "bound_us": "· evidence: worse",
        "registers": "· evidence: changed",
    }
    assert counts.endswith(": 1 regressed")
    assert evidence == "evidence, which raises no alarm: 1 worse, 1 changed"
    assert main(command) == 1
    assert "evidence" not in capsys.readouterr().out


@pytest.mark.parametrize(("after", "code"), [(180.0, 1), (100.5, 3), (50.0, 0)])
def test_a_job_s_summary_has_the_verdict_of_the_command_that_it_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], after: float, code: int
) -> None:
    tree = tree_of(tmp_path, 100.0, 100.0, after, after)
    given = ["--results", str(tree.results), "--repo", str(tree.repo), *tree.commits[1:3]]
    assert main(["compare", "--recorded", *given]) == code
    assert main(["ci", "comment", "--as", "summary", *given]) == code
    summary = capsys.readouterr().out
    assert "`predicted_us`" in summary


def test_what_no_card_checked_changes_no_verdict(tmp_path: Path) -> None:
    tree = tree_of(tmp_path, 100.0, 100.0, 50.0, 50.0, checked=False)
    judgement = judge_folders([tree.results], tree.repo)
    assert judgement.findings[0].predicted == ""
    evidence = Evidence([tree.results])
    compared = compare(judgement.history, tree.commits[0], tree.commits[3], evidence)
    assert [(one.series.meaning.metric, one.verdict) for one in compared] == [
        ("bound_us", "regressed")
    ]


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("compile failed", "head does not compile"),
        ("call failed", "head has no code of it: the call raises"),
    ],
)
def test_a_kernel_that_does_not_compile_is_there(tmp_path: Path, status: str, reason: str) -> None:
    gone = float("nan")
    levels = {"compile_failures": [0.0, 1.0, 0.0], "launches": [1.0, gone, 1.0]}
    tree = trees.compiled_tree(tmp_path, {name: [*values] for name, values in levels.items()})
    for commit, one in zip(tree.commits, ("ok", status, "ok"), strict=True):
        keeping.write_compiled(tree.results, commit, TRITON, {PLACE: []}, statuses={PLACE: one})
    name_triton(tree)
    history = judge_folders([tree.results], tree.repo).history
    first, broken, mended = tree.commits

    def launches(base: str, head: str) -> tuple[str, str]:
        compared = compare(history, base, head, Evidence([tree.results]))
        (one,) = (c for c in compared if c.series.meaning.metric == "launches")
        return one.verdict, one.reason

    assert launches(first, broken) == ("not applicable", reason)
    assert launches(broken, mended) == ("not applicable", reason.replace("head", "base"))
    assert launches(first, mended) == ("unchanged", "")


STEADY = (10.0, 10.0, 10.0, 10.0)


def test_a_predicted_time_that_no_finding_holds_is_on_the_index_and_its_commit(
    tmp_path: Path,
) -> None:
    tree = tree_of(tmp_path, 100.0, 100.0, 180.0, 180.0, bound=STEADY)
    site = trees.build_site(tree, tmp_path / "html")
    base, head = tree.commits[1:3]
    judges = f"than before: warpwatch compare --recorded {base[:10]} {head[:10]} judges it."
    index = said_on(site / "index.html")
    line = "No open regression in 4 measured commits; 1 predicted time is worse than before"
    assert line in index
    assert f"1 predicted time is worse at {head[:10]} {judges}" in index
    assert f"{head[:10]} Change number 2 ▼ 1 predicted time is worse" in index
    page = said_on(site / commit_path(head))
    assert f"1 predicted time is worse at this commit {judges}" in page
    sentence = "the call is predicted to take 100.0 -> 180.0 us"
    assert f"{PLACE[0]} @ sm_90 : {sentence}" in page
    for commit in (base, tree.commits[3]):
        assert "predicted" not in said_on(site / commit_path(commit))
    command = ["compare", "--recorded", base[:10], head[:10]]
    assert main([*command, "--results", str(tree.results), "--repo", str(tree.repo)]) == 1


def test_a_page_of_the_old_site_is_drawn_again_where_a_predicted_time_came(tmp_path: Path) -> None:
    tree = tree_of(tmp_path, 100.0, 100.0, 100.0, 100.0, bound=STEADY)
    page = trees.build_site(tree, tmp_path / "html") / commit_path(tree.commits[2])
    assert "predicted" not in said_on(page)
    write_times(tree, 100.0, 100.0, 180.0, 180.0)
    trees.build_site(tree, tmp_path / "html")
    assert "1 predicted time is worse at this commit" in said_on(page)


@pytest.mark.parametrize(
    ("us", "bound", "on_commit", "on_index"),
    [
        ((100.0, 100.0, 180.0, 180.0), STEADY, True, True),
        ((100.0, 100.0, 180.0, 100.0), STEADY, True, False),
        ((100.0, 100.0, 101.0, 101.0), STEADY, False, False),
        ((180.0, 180.0, 100.0, 100.0), STEADY, False, False),
        # A finding that is open says it; one that recovered says nothing of a time that stands.
        ((100.0, 100.0, 180.0, 180.0), BOUND, False, False),
        ((100.0, 100.0, 180.0, 180.0), (10.0, 10.0, 20.0, 10.0), True, True),
        ((100.0, 100.0, 180.0, 100.0), (10.0, 10.0, 20.0, 10.0), False, False),
    ],
)
def test_a_longer_time_is_said_as_long_as_no_finding_says_it(
    tmp_path: Path,
    us: Sequence[float],
    bound: Sequence[float | None],
    on_commit: bool,
    on_index: bool,
) -> None:
    tree = tree_of(tmp_path, *us, bound=bound)
    site = trees.build_site(tree, tmp_path / "html")
    said = "predicted time is worse at"
    pages = [said_on(site / commit_path(one)) for one in tree.commits]
    assert [said in page for page in pages] == [False, False, on_commit, False]
    assert (said in said_on(site / "index.html")) is on_index
    times = json.loads((site / "regressions.json").read_text("utf-8"))["longer_times"]
    assert [(one["head"], one["stands"]) for one in times] == (
        [(tree.commits[2], on_index)] if on_commit else []
    )
    feed = (site / "feed.atom").read_text("utf-8")
    assert ("regressed: predicted time of " in feed) is on_commit


def test_of_a_model_that_no_card_checked_a_report_says_nothing(tmp_path: Path) -> None:
    tree = tree_of(tmp_path, 100.0, 100.0, 180.0, 180.0, bound=STEADY, checked=False)
    site = trees.build_site(tree, tmp_path / "html")
    assert "predicted" not in said_on(site / "index.html")
