"""No report is green that compared nothing, and what was not measured is named."""

from __future__ import annotations

import json
import lzma
import subprocess
from pathlib import Path

import pytest

from tests.reports import keeping, trees
from warpwatch.judge.evidence import compiled as kept_evidence
from warpwatch.judge.evidence.benchmarks import counted
from warpwatch.judge.evidence.coverage import coverage
from warpwatch.judge.evidence.lookup import Evidence
from warpwatch.judge.findings.judgement import judge_folders
from warpwatch.judge.model.commits import files_of
from warpwatch.report.rendering import finding_path

PLACE = ("flash B1-H8-S512-D64", "sm_90")


def test_nothing_compared_is_no_clean_bill(tmp_path: Path) -> None:
    tree = trees.compiled_tree(tmp_path, {"launches": [None, None], "bound_us": [None, None]})
    for commit in tree.commits:
        status = {PLACE: "not applicable"}
        keeping.write_compiled(tree.results, commit, "3.7.1", {PLACE: []}, statuses=status)
    index = trees.build_site(tree, tmp_path / "html", code=3) / "index.html"
    page = index.read_text()
    assert "No open regression" not in page and ">unchanged<" not in page
    assert "Nothing could be compared in 2 measured commits" in page
    assert page.count("nothing was measured") == 2
    assert "0 of 1 pairs of workload and target measured" in page
    assert "never measured at any commit: flash B1-H8-S512-D64" in page


def test_a_workload_that_only_the_newest_commit_lacks_was_measured(tmp_path: Path) -> None:
    tree = trees.compiled_tree(tmp_path, {"launches": [1.0, 1.0, None]})
    for commit, status in zip(tree.commits, ["ok", "ok", "not measured"], strict=True):
        keeping.write_compiled(tree.results, commit, "3.7.1", {PLACE: []}, statuses={PLACE: status})
    page = (trees.build_site(tree, tmp_path / "html") / "index.html").read_text()
    assert "0 of 1 pairs of workload and target measured" in page
    assert "never measured" not in page and "no value at any" not in page


def test_what_foreign_evidence_says_is_cut_to_a_line(tmp_path: Path) -> None:
    said = "a note\n\x1b[31m" + "x" * 10_000
    folder = tmp_path / kept_evidence.FOLDER
    path = keeping.write_compiled(
        tmp_path, "a" * 40, "3.7.1", {PLACE: []}, recorded={"notes": [said] * 100}
    )
    (notes,) = Evidence([tmp_path]).notes("a" * 40, "3.7.1").values()
    assert len(notes) == 50 and notes[0] == "a note  [31m" + "x" * 287 + "…"
    content = json.loads(lzma.decompress(path.read_bytes()))
    content["results"][0] |= {"status": "not measured", "detail": said}
    path.write_bytes(lzma.compress(json.dumps(content).encode()))
    (reason,) = coverage(folder, {"a" * 40}).reasons
    assert reason.detail == notes[0]


def test_what_never_compiled_is_no_clean_bill(tmp_path: Path) -> None:
    """As many failures as before are no sign that nothing got worse."""
    tree = trees.compiled_tree(tmp_path, {"compile_failures": [1.0, 1.0], "launches": [None] * 2})
    page = (trees.build_site(tree, tmp_path / "html", code=3) / "index.html").read_text()
    assert "No open regression" not in page


def test_a_set_up_that_failed_is_not_unchanged(tmp_path: Path) -> None:
    tree = trees.compiled_tree(tmp_path, {"launches": [1.0, None, 1.0, 1.0]})
    page = (trees.build_site(tree, tmp_path / "html") / "index.html").read_text()
    failing = next(
        line for line in page.splitlines() if tree.commits[1][:10] in line and "<li>" in line
    )
    assert ">unchanged<" not in failing
    assert "Not measured" not in page


def test_values_of_benchmarks_are_counted(tmp_path: Path) -> None:
    tree = trees.make_repository(tmp_path, 2)
    tree.add_benchmark("latency.A.track_cold", [["one", "two"]])
    tree.add_benchmark("compiled.A.track_launches", [["one"]])
    tree.write_benchmarks()
    tree.write_machine("rig")
    rows: dict[str, list[float | None]] = {
        "latency.A.track_cold": [None, None],
        "compiled.A.track_launches": [1.0],
    }
    tree.write_result(0, rows)
    found = counted(tree.results, set(tree.commits), [], 0)
    assert (found.measured, found.failed) == (0, (("latency.A.track_cold", 2),))
    assert found.lines() == [
        "benchmarks: 0 of 2 values measured",
        "  2 failed: latency.A.track_cold",
    ]
    assert found.compiled == 1
    nothing = counted(tree.results, set(tree.commits), ["^host"], 0)
    assert (nothing.lines(), nothing.compiled) == ([], 0)
    one = counted(tree.results, set(tree.commits), [r"^latency\..*\('two'\)$"], 0)
    assert one.failed == (("latency.A.track_cold", 1),), "as asv writes one value's parameters"
    assert counted(tree.results, set(tree.commits), [r"\('one', 'two'\)"], 0).lines() == []
    tree.write_result(1, rows | {"latency.A.track_cold": [3.0, None]})
    assert counted(tree.results, set(tree.commits), [], 0).measured == 1


def _git(repository: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.invalid")
    command = ["git", "-C", str(repository), *identity, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    return done.stdout.strip()


@pytest.mark.parametrize("touched", ["own", "imported"])
def test_a_range_begins_with_who_touched_the_kernels_files(tmp_path: Path, touched: str) -> None:
    """Nobody measured the commits in between: the newest is innocent."""
    tree = trees.Tree(tmp_path)
    (tree.repo / "fast").mkdir(parents=True)
    _git(tree.repo, "init", "-q", "-b", "main")
    files = {"own": "fast/norm.py", "imported": "fast/tools.py", "other": "fast/rope.py"}
    for number, name in enumerate(["own", "other", touched, "other", "other"]):
        (tree.repo / files[name]).write_text(f"# {number}\n")
        _git(tree.repo, "add", "--all")
        _git(tree.repo, "commit", "-q", "-m", f"Change {number} of {name}")
        tree.commits.append(_git(tree.repo, "rev-parse", "HEAD"))
    made = trees.compiled_tree(tmp_path / "levels", {"launches": [1.0] * 5}, sources="fast")
    tree.benchmarks = made.benchmarks
    tree.write_benchmarks()
    tree.write_machine("rig")
    sources = {"own": [files["own"]], "imported": [files["imported"]]}
    for commit, launches in ((0, 1.0), (4, 3.0)):
        tree.write_result(commit, {"compiled.Attention.track_launches": [launches]})
        keeping.write_compiled(
            tree.results, tree.commits[commit], "3.7.1", {PLACE: []}, recorded={"sources": sources}
        )
    (finding,) = judge_folders([tree.results], tree.repo).findings
    assert finding.since == tree.commits[4]
    assert finding.likeliest == tree.commits[2]
    nearest_first = [tree.commits[number] for number in (2, 4, 3, 1)]
    assert list(finding.suspects) == nearest_first
    site = trees.build_site(tree, tmp_path / "html")
    assert f"Change 2 of {touched}" in (site / "index.html").read_text()
    page = (site / finding_path(finding.identity)).read_text()
    assert "the likeliest that touches these files of 4 commits" in page


def test_a_merge_touches_what_it_brought(tmp_path: Path) -> None:
    (tmp_path / "fast").mkdir()
    _git(tmp_path, "init", "-q", "-b", "main")
    for switch, name in ((), "a"), (("-c", "topic"), "b"), (("main",), "c"):
        if switch:
            _git(tmp_path, "switch", "-q", *switch)
        (tmp_path / "fast" / name).write_text(name)
        _git(tmp_path, "add", "--all")
        _git(tmp_path, "commit", "-q", "-m", name)
    _git(tmp_path, "merge", "-q", "--no-ff", "topic", "-m", "merge")
    merge = _git(tmp_path, "rev-parse", "HEAD")
    found = files_of(tmp_path, "fast")
    assert len(found) == 4 and found[merge] == {"fast/b"}
