"""The spine: a git history goes in, and what the report flags is what was planted."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from examples.demo import __main__ as demo
from examples.demo import harmless, planted, spine, story, verdict
from examples.demo.commits import COMMITS
from warpwatch.config import metrics

# What `make demo` runs in full, cut to what a test may cost.
SHORT = (
    harmless.moved_file,
    planted.extra_copy,
    planted.fused_norm,
    planted.serialised_wgmma,
    planted.causal_not_skipped,
    planted.spill_on_one_amd,
    planted.spilling_tile,
)


@pytest.mark.slow
def test_what_was_planted_is_found_and_nothing_else(tmp_path: Path) -> None:
    done = spine.run(SHORT, tmp_path / "demo")
    rows = verdict.judge(done.commits, done.regressions)
    assert [row.mistakes for row in rows] == [()] * len(SHORT)
    assert [bool(row.found) for row in rows] == [one.planted is not None for one in SHORT]
    assert done.report.is_file()


def test_the_history_has_enough_of_both() -> None:
    changes = [one.planted for one in COMMITS if one.planted]
    assert len(changes) >= 10
    assert len(COMMITS) - len(changes) >= 12
    assert len({one.metric for one in changes}) >= 8
    assert len({one.subject for one in COMMITS}) == len(COMMITS)


def test_the_history_is_the_same_at_every_making(tmp_path: Path) -> None:
    first = story.write(COMMITS, tmp_path / "first")
    second = story.write(COMMITS, tmp_path / "second")
    assert list(first) == list(second)
    assert list(first.values()) == list(COMMITS)
    assert (tmp_path / "first" / "demokernels" / "rows" / "softmax.py").is_file()


def test_an_edit_that_no_longer_fits_names_its_commit(tmp_path: Path) -> None:
    stale = story.Commit("stale", (story.Edit("demokernels/gpu.py", "not there", "new"),))
    with pytest.raises(ValueError, match=r"commit 1, 'stale': demokernels/gpu.py: expected"):
        story.write((stale,), tmp_path / "repository")


def test_another_triton_is_put_before_the_installed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = []
    monkeypatch.setenv("PYTHONPATH", "mine")
    monkeypatch.setattr(demo.sides, "triton_folder", lambda version: tmp_path / version)
    monkeypatch.setattr(demo, "show", lambda *given: seen.append(os.environ["PYTHONPATH"]) or 0)
    assert demo.main(["--triton", "3.6.0"]) == 0
    assert seen == [f"{tmp_path / '3.6.0'}{os.pathsep}mine"]
    with pytest.raises(SystemExit) as ended:
        demo.main(["--keep", str(tmp_path)])
    assert ended.value.code == 2
    assert "is there already" in capsys.readouterr().err


def finding(*several: dict[str, Any], **changed: Any) -> dict[str, Any]:
    """A finding with one change as planted, but for ``changed``; or with ``several``."""
    change = {
        "workload": "matmul",
        "target": "sm_90",
        "metric": "advisories",
        "before": 0,
        "after": 1,
        "kind": "hurt",
        "first_commit": "c1",
    }
    return {
        "verdict": "regressed",
        "commits": ["c1"],
        "reasons": ["wgmma serialised: 0 to 1, matmul on sm_90"],
        "changes": [change | one for one in several or (changed,)],
    }


COMMIT = planted.serialised_wgmma


def mistakes(*findings: dict[str, Any], commit: story.Commit = COMMIT) -> list[str]:
    rows = verdict.judge({"c1": commit}, {"findings": list(findings)})
    return [mistake for row in rows for mistake in row.mistakes]


def test_the_right_finding_has_no_mistake() -> None:
    assert mistakes(finding()) == []


@pytest.mark.parametrize(
    ("findings", "said"),
    [
        ([], "not found"),
        ([finding(target="sm_80")], "not found: advisories sm_90"),
        ([finding(target="sm_80")], "not planted: advisories sm_80"),
        ([finding({"target": "sm_80"}, {})], "not planted: advisories sm_80"),
        ([finding({"metric": "bound_us"}, {})], "not planted: bound_us sm_90"),
        ([finding({"kind": "lost", "metric": "bound_us"}, {})], "not planted: bound_us sm_90"),
        (
            [{**finding(), "reasons": ["wgmma serialised: 0 to 1, matmul on sm_80, sm_90"]}],
            "its reasons name sm_80 sm_90",
        ),
        ([finding(workload="linear")], "also blames linear"),
        ([finding(metric="launches")], "not planted: launches sm_90"),
        ([{**finding(), "verdict": "improved"}], "also improved"),
        ([{**finding(), "reasons": ["extra copy"]}], "cause: expected 'serialised'"),
        ([{**finding(), "reasons": []}], "cause: expected 'serialised'"),
        ([{**finding(), "commits": ["c0", "c1"]}], "2 commits instead of one"),
        ([finding(), {**finding(first_commit="c9")}], "false alarm"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_finding_is_a_mistake(findings: list[dict[str, Any]], said: str) -> None:
    assert any(said in one for one in mistakes(*findings))


def test_what_does_not_compile_ends_its_other_values_and_no_others() -> None:
    ended = {"kind": "lost", "metric": "bound_us", "target": "sm_80"}
    failed = finding({"metric": "compile_failures", "target": "sm_80"}, ended)
    failed["reasons"] = ["does not compile or fit: 0 to 1, matmul on sm_80"]
    assert mistakes(failed, commit=planted.does_not_fit) == []
    failed["changes"][1]["target"] = "sm_90"
    assert mistakes(failed, commit=planted.does_not_fit) == ["not planted: bound_us sm_90"]


def test_every_planted_metric_is_a_verdict_metric() -> None:
    verdicts = {one.name for one in metrics.COMPILED if one.role == "verdict"}
    for one in (commit.planted for commit in COMMITS if commit.planted):
        assert set(one.changed) <= verdicts


def test_a_finding_in_a_harmless_commit_is_a_false_alarm() -> None:
    (said,) = mistakes(finding(), commit=replace(COMMIT, planted=None))
    assert said.startswith("false alarm: regressed, wgmma serialised")
