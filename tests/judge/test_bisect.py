"""``warpwatch bisect`` finds the first bad commit, and stops where it cannot tell."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.reports import trees
from warpwatch.__main__ import main
from warpwatch.commands.gpu import bisect
from warpwatch.commands.gpu.bisect import between, search
from warpwatch.config import package as configuration
from warpwatch.instruments import presence
from warpwatch.judge.findings.judgement import judge_folders
from warpwatch.judge.model.core import Verdict

COMMITS = [f"{i:040x}" for i in range(13)]


@pytest.mark.parametrize("first_bad", range(13))
def test_the_first_bad_commit_is_found_in_few_looks(first_bad: int) -> None:
    looked: list[str] = []

    def judge(commit: str) -> Verdict:
        looked.append(commit)
        return "regressed" if COMMITS.index(commit) >= first_bad else "unchanged"

    found = search(COMMITS, judge, lambda _: None)
    assert found.commits == (COMMITS[first_bad],)
    assert not found.why
    assert len(looked) <= 5


def test_an_unclear_commit_ends_the_search_with_the_range_that_is_left() -> None:
    def judge(commit: str) -> Verdict:
        return "regressed" if commit == COMMITS[-1] else "inconclusive"

    found = search(COMMITS, judge, lambda _: None)
    assert found.commits == tuple(COMMITS)
    assert "is inconclusive" in found.why


def test_a_bad_commit_that_is_not_bad_is_said() -> None:
    found = search(COMMITS, lambda _: "unchanged", lambda _: None)
    assert "itself is unchanged" in found.why


def test_revisions_are_no_options() -> None:
    with pytest.raises(ValueError, match="git rev-list failed"):
        between("--output=x", "HEAD")
    with pytest.raises(ValueError, match="nothing to bisect"):
        between("HEAD", "HEAD")


WORKLOAD = "flash B1-H8-S512-D64"  # what compiled_tree calls its one


def test_a_finding_names_its_range_its_workloads_and_metrics(tmp_path: Path) -> None:
    tree = trees.compiled_tree(tmp_path, {"launches": [1] * 6 + [2] * 2, "spilled_bytes": [0] * 8})
    for unmeasured in (4, 5):
        next(tree.results.glob(f"rig/{tree.commits[unmeasured][:8]}-*")).unlink()
    judgement = judge_folders([tree.results], tree.repo)
    (finding,) = [f for f in judgement.findings if judgement.status(f) == "open"]
    found = bisect.of_finding(judgement, finding.identity, [WORKLOAD])
    assert (found.good, found.bad) == (tree.commits[3], tree.commits[6])
    assert found.pairs == ((WORKLOAD, "sm_90"),)
    assert found.metrics == {"launches"}
    assert not found.by_time
    with pytest.raises(ValueError, match="is on sm_90"):
        bisect.of_finding(judgement, finding.identity, [WORKLOAD], ["gfx942"])
    with pytest.raises(ValueError, match=f"not known; there are {finding.identity}"):
        bisect.of_finding(judgement, "0" * 12, [WORKLOAD])
    with pytest.raises(ValueError, match="none of this package's workloads"):
        bisect.of_finding(judgement, finding.identity, ["other"])


def test_what_only_a_clock_saw_is_not_judged_without_a_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = trees.make_repository(tmp_path, 30)
    name = configuration.workloads().all_workloads()[0].name
    tree.add_benchmark(
        "attention.track_latency_cold",
        [[name]],
        param_names=["workload"],
        unit="us",
        instrument="latency",
        metric="latency_cold",
    )
    tree.write_benchmarks()
    for commit in range(30):
        level = (1 + 0.002 * math.sin(7.3 * commit)) * (1.2 if commit >= 15 else 1.0)
        tree.write_result(commit, {"attention.track_latency_cold": [level]})
    (finding,) = judge_folders([tree.results], tree.repo).findings
    found = bisect.of_finding(judge_folders([tree.results], tree.repo), finding.identity, [name])
    assert found.by_time
    assert found.names == [name]
    assert found.metrics == frozenset()
    if not presence.has_gpu():
        command = ["bisect", finding.identity, "--results", str(tree.results)]
        assert main(command) == 2
        assert "there is no GPU here" in capsys.readouterr().err
    assert main(["bisect", finding.identity, "--workload", name]) == 2
    assert main(["bisect", "HEAD~1", "HEAD"]) == 2
    assert "--workload: expected the name" in capsys.readouterr().err
