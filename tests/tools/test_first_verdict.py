"""What times the action runs the action's own steps, on a repository of the size that is named."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

from tests.containers.foreign import git
from tests.root import ROOT
from tools.harness import first_verdict, kept_commit
from warpwatch.config import package


def test_its_steps_are_those_of_the_action() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    runs = [step["run"] for step in action["runs"]["steps"] if "run" in step]
    assert [run.rpartition(" ")[2] for run in runs] == first_verdict.steps()
    assert first_verdict.steps() == ["key", "install", "lane"]


def test_its_repository_has_twenty_workloads_for_four_targets_and_one_gets_worse(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "team"
    commits = first_verdict.repository(folder, 20)
    found = package.load(folder / "warpwatch.toml")
    assert len(found.calls) == 20 and len(found.targets) == 4
    before, worse, mended = (
        git(folder, "show", f"{commit}:demokernels/norm.py") for commit in commits
    )
    assert worse.count("square_sum_kernel[") == before.count("square_sum_kernel[") + 1
    assert mended == before


@pytest.mark.parametrize("slow", ["first", "cached", ""])
def test_it_counts_all_steps_and_fails_over_a_limit(
    slow: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pushes = iter(("first", "cached"))

    def push(machine: first_verdict.Machine, *_: object) -> first_verdict.Run:
        name = next(pushes)
        for folder in (machine.environment, machine.folder / "temp" / "pip"):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "file").write_bytes(bytes(3_000_000))
        limit = {"first": first_verdict.FIRST_S, "cached": first_verdict.CACHED_S}[name]
        verdict = {"first": "failure", "cached": "success"}[name]
        return first_verdict.Run(verdict, {"a": limit / 2, "b": limit / 2 + (name == slow)})

    monkeypatch.setattr(first_verdict.Machine, "push", push)
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None)
    monkeypatch.setattr("sys.argv", ["first_verdict"])
    assert first_verdict.main() == int(bool(slow))
    said = capsys.readouterr().out
    assert "of 240 (" in said and "of 120 (" in said and "3 MB fetched" in said


def test_a_commit_whose_kernels_are_kept_is_timed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None)
    code = kept_commit.main(["--workloads", "1", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["pairs"] == 3
    assert code == int(found["kept"]["seconds"] > kept_commit.LIMIT_S)
    # Two interpreters start at least, and one imports torch.
    assert all(found[name]["processor_seconds"] > 1 for name in ("first", "kept"))
