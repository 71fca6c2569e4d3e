"""``warpwatch bisect`` finds the first bad commit, and stops where it cannot tell."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.reports import trees
from warpwatch.__main__ import main
from warpwatch.commands.gpu import bisect
from warpwatch.commands.gpu.bisect import between, search
from warpwatch.compare import paired_runs
from warpwatch.config import package as configuration
from warpwatch.instruments import presence
from warpwatch.instruments.outcome import Outcome
from warpwatch.judge.findings.judgement import judge_folders
from warpwatch.judge.model.core import Verdict
from warpwatch.judge.pairs.judgement import Judgement as Pairs
from warpwatch.judge.pairs.run_verdict import Judged
from warpwatch.session.session import Session

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


KERNEL = """import torch
import triton
import triton.language as tl


@triton.jit
def add_one(x, y, n, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(y + i, tl.load(x + i, mask=i < n) + 1.0, mask=i < n)


def plus(x, times=LAUNCHES):
    y = torch.empty_like(x)
    for _ in range(times):
        add_one[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), N=128)
    return y
"""
# By commit; the third changes no code, the fourth makes a second launch.
SOURCES = [
    KERNEL.replace("LAUNCHES", "1"),
    "# first\n" + KERNEL.replace("LAUNCHES", "1"),
    "# second\n" + KERNEL.replace("LAUNCHES", "1"),
    "# second\n" + KERNEL.replace("LAUNCHES", "2"),
    "# third\n" + KERNEL.replace("LAUNCHES", "2"),
]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository whose fourth commit makes one launch more."""
    root = tmp_path_factory.mktemp("bisected")
    (root / "plusops").mkdir()
    (root / "warpwatch.toml").write_text(
        '[package]\nname = "plusops"\npath = "plusops"\n[[workload]]\nname = "w"\n'
        'call = "plusops:plus"\nargs = "fp32[1024]"\n'
    )

    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"]
        subprocess.run(
            ["git", *identity, *arguments], cwd=root, check=True, capture_output=True, timeout=120
        )

    git("init", "-q")
    for number, text in enumerate(SOURCES):
        (root / "plusops" / "__init__.py").write_text(text)
        git("add", ".")
        git("commit", "-qm", f"commit {number}")
    return root


WATCHED = ["--workload", "w", "--target", "sm_90"]


def bisected(package: Path, good: str, bad: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "warpwatch", "bisect", good, bad, *WATCHED],
        cwd=package,
        env={**os.environ, "WARPWATCH_CONFIG": str(package / "warpwatch.toml")},
        capture_output=True,
        text=True,
        timeout=900,
    )


def test_a_change_that_both_ends_show_is_found_and_nothing_is_compiled_twice(package: Path) -> None:
    done = bisected(package, "HEAD~4", "HEAD")
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines() == [done.stdout.strip()]
    assert done.stdout.strip().endswith("t: commit 3")
    assert "reproduced at both ends: predicted_us of w @ sm_90, " in done.stderr
    compiled = [line.partition(":")[0] for line in done.stderr.splitlines() if "compiled" in line]
    assert len(compiled) == len(set(compiled)) >= 4  # each version once: the ends and two steps


def test_a_change_that_does_not_reproduce_is_said_before_any_step(package: Path) -> None:
    done = bisected(package, "HEAD~4", "HEAD~2")
    assert done.returncode == 3, done.stderr
    (line,) = done.stdout.splitlines()
    assert line.startswith("inconclusive: the change does not reproduce: ")
    assert "is unchanged in" in line and line.endswith("nothing is bisected")
    compiled = [one for one in done.stderr.splitlines() if "compiled 1 of 1" in one]
    assert len(compiled) == 2  # the ends


def judged(metric: str, verdict: Verdict, subject: str = "w", reason: str = "said") -> Judged:
    nan = math.nan
    found = Pairs(verdict, 1.04, (nan, nan), 1.0, 8, 0.05, "groups", "quiet", reason)
    return Judged(metric, subject, "us", 1.0, 1.04, found, False, "latency")


def test_only_what_both_ends_show_is_looked_at_in_a_step() -> None:
    wanted = bisect.Search("a" * 40, "b" * 40, (("w", ""), ("v", "")), frozenset(), True)
    slower, noisy = judged("latency_cold", "regressed"), judged("peak", "inconclusive", "v")
    assert bisect._reproduced([slower, noisy], wanted) == [slower]
    assert bisect._reproduced([noisy], wanted) == []
    said = bisect._unreproduced([judged("latency_cold", "unchanged"), noisy], wanted)
    assert said == (
        "the change does not reproduce: bbbbbbbbbb against aaaaaaaaaa is inconclusive in peak of v "
        "(said)"
    )
    assert bisect._unreproduced([], wanted).endswith("has the same package")


def test_timed_steps_measure_each_commit_once_and_watch_what_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a software GPU: real pairs of processes, of which the last three commits are slower."""
    measured: list[tuple[str, list[str]]] = []

    def residents(sides: Mapping[str, str], counters: bool) -> SimpleNamespace:
        assert counters  # short calls are judged by them
        slow = COMMITS.index(sides["head"]) >= 10

        def measure(side: str, names: Sequence[str]) -> Mapping[str, Outcome]:
            us = {"w": 110.0 if slow and side == "head" else 100.0, "v": 50.0}
            request = {"mode": "latency", "scripts": {name: {"us": us[name]} for name in names}}
            return Session(request, seconds_each=20.0).run(names)

        def together(turns: Sequence[tuple[str, str]], names: Sequence[str]) -> list[Any]:
            measured.append((sides["head"], list(names)))
            return list(paired_runs.one_by_one(measure)(turns, names))

        return SimpleNamespace(measure=together, cards=["0"])

    monkeypatch.setattr(bisect, "Residents", residents)
    monkeypatch.setattr(bisect, "most_together", lambda cards: 8)
    monkeypatch.setattr(bisect.versions, "prepare", lambda commit, _: commit)
    monkeypatch.setattr(bisect.versions, "same_package", lambda *_: False)
    wanted = bisect.Search(COMMITS[0], COMMITS[-1], (("w", ""), ("v", "")), frozenset(), True)
    steps = bisect._Steps(wanted, tmp_path)
    worse = bisect._reproduced(steps.judged(COMMITS[-1]), wanted)
    assert [(one.subject, one.metric) for one in worse] == [("w", "latency_cold")]
    steps.watch(worse)
    found = search(COMMITS[1:], steps.judge, lambda _: None)
    assert (found.commits, found.why) == ((COMMITS[10],), "")
    heads = [head for head, _ in measured]
    assert len(heads) == len(set(heads))
    assert measured[0] == (COMMITS[-1], ["w", "v"])
    assert all(names == ["w"] for _, names in measured[1:])


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
