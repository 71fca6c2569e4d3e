"""The comment on a pull request where values are gone: the compiler's words, or the job to see."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reports import keeping, trees
from tests.workflows.flow import GOOD_BASE, ONE_OF_ONE, SAME_HEAD, judge
from tests.workflows.stand_in import BASE, HEAD, StandIn, honest, result, zipped
from warpwatch.__main__ import main

TRITON = "3.6.0"
PLACES: keeping.Places = {("matmul-a", ""): [], ("matmul-b", ""): []}  # of no target


def write(results: Path, commit: str, details: dict[str, str]) -> dict[str, str | bytes]:
    """Evidence of a commit at which some workloads do not compile."""
    said = {place: details[place[0]] for place in PLACES if place[0] in details}
    statuses = dict.fromkeys(said, "compile failed")
    path = keeping.write_compiled(results, commit, TRITON, PLACES, statuses=statuses, details=said)
    return {f"results/evidence/{path.name}": path.read_bytes()}


def test_a_comment_says_what_the_compiler_said(github: StandIn, tmp_path: Path) -> None:
    """Of the call that is gone at head, and not of one that has all its values."""
    new = "_k: no attribute `sigmoidd`\n::stop-commands:: @ada"
    kept = write(tmp_path / "kept", BASE, {})
    kept |= write(tmp_path / "kept", HEAD, {"matmul-a": "_k: another", "matmul-b": new})
    head = result(HEAD, [0, None, 8], [3, None, 2])
    files: dict[str, str | bytes] = {**honest(head, GOOD_BASE)}
    github.artifacts[ONE_OF_ONE] = zipped(files | kept)
    assert judge(tmp_path, GOOD_BASE) == 0
    (comment,), (check,) = github.comments, github.checks
    for text in (comment["body"], check["output"]["summary"]):
        (line,) = (one for one in text.splitlines() if one.startswith("- at head"))
        assert line.startswith("- at head: `1 compile failed: _k: no attribute 'sigmoidd' ")
        assert line.endswith("(such as matmul-b on )`")


def test_a_workload_without_a_value_at_either_commit_is_not_green(
    github: StandIn, tmp_path: Path
) -> None:
    """Its call is mistyped at head, by whose configuration both commits are measured."""
    places: keeping.Places = {("matmul-a", ""): [], ("matmul-x", "sm_90"): []}
    why = {("matmul-x", "sm_90"): "ops has no matmull\n@ada; did you mean `matmul`?"}
    kept: dict[str, str | bytes] = {}
    for commit in (BASE, HEAD):
        statuses = dict.fromkeys(why, "not applicable")
        given = {"statuses": statuses, "details": why}
        path = keeping.write_compiled(tmp_path / "kept", commit, TRITON, places, **given)
        kept[f"results/evidence/{path.name}"] = path.read_bytes()
    files: dict[str, str | bytes] = {**honest(SAME_HEAD, GOOD_BASE)}
    github.artifacts[ONE_OF_ONE] = zipped(files)
    assert judge(tmp_path, GOOD_BASE) == 0
    github.artifacts[ONE_OF_ONE] = zipped(files | kept)
    assert judge(tmp_path, GOOD_BASE) == 0
    before, after = github.checks
    assert (before["conclusion"], after["conclusion"]) == ("success", "action_required")
    body = github.comments[-1]["body"]
    assert "\n- 1 workload has no value at either commit: mend the call" in body
    said = "- at head: `1 not applicable: ops has no matmull @ada; did you mean 'matmul'?"
    assert f"\n{said} (such as matmul-x on sm_90)`" in body


def test_a_lane_that_delivered_nothing_sends_to_its_log(github: StandIn, tmp_path: Path) -> None:
    assert judge(tmp_path, GOOD_BASE) == 0
    (check,), (comment,) = github.checks, github.comments
    assert check["output"]["title"] == "not all was measured: 6 not measured, 1 shard missing"
    assert "the log of the job that delivered nothing says why" in comment["body"]
    assert "inconclusive | 0 | — " not in comment["body"]
    assert "a kernel is gone" not in comment["body"]
    assert "Measure once more" not in comment["body"]


@pytest.mark.parametrize("which", ["base", "head"])
def test_a_commit_that_was_never_measured_is_named(
    which: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = trees.compiled_tree(tmp_path, {"launches": [1, 1, 1]})
    gone = tree.commits[0 if which == "base" else 2]
    (tree.results / "rig" / f"{gone[:8]}-env-py3.11.json").unlink()
    # A terminal would turn red.
    (tree.results / "rig" / "1234abcd-\x1b[31menv\n::error::-py3.11.json").write_text("{")
    given = ["--results", str(tree.results), "--repo", str(tree.repo)]
    assert main(["ci", "comment", *given, tree.commits[0], tree.commits[2]]) == 3
    said = capsys.readouterr()
    assert f"\n- `{which} {gone[:10]} was never measured; the nearest measured commit" in said.out
    (notice,) = said.err.splitlines()
    assert notice.startswith("notice: ") and "1234abcd- [31menv ::error::-py3.11.json: is" in notice
