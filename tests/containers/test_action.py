"""The compile lane as an action: one line in any repository, no secret, a verdict in its colour."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.containers.foreign import ONE_LAUNCH, TWO_LAUNCHES, git, write
from warpwatch.sandbox import images

ROOT = images.root()
SCRIPT = ROOT / "docker" / "action.sh"
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
# One target of each vendor: the action is tested, not the compiler.
CONFIGURATION = """
targets = ["sm_90", "gfx942"]

[package]
name = "fastops"
path = "src/fastops"

[[workload]]
name = "gelu"
call = "fastops:gelu"
args = "bf16[4096]"
"""


def test_the_action_asks_for_no_secret_and_runs_one_script() -> None:
    text = (ROOT / "action.yml").read_text()
    assert "secrets." not in text and "github.token" not in text
    steps = ACTION["runs"]["steps"]
    runs = [step["run"] for step in steps if "run" in step]
    assert runs == [f"$GITHUB_ACTION_PATH/docker/action.sh {x}" for x in ("key", "install", "lane")]
    known = re.findall(r"^(\w+)\)$", SCRIPT.read_text(), re.MULTILINE)
    assert known == ["key", "install", "lane"]
    uses = [step["uses"] for step in steps if "uses" in step]
    assert all(re.fullmatch(r"actions/\w[\w-]+@[0-9a-f]{40}", one) for one in uses)
    assert len(re.findall(r"uses: \S+@[0-9a-f]{40} # v[\d.]+$", text, re.MULTILINE)) == len(uses)
    (checkout,) = [step["with"] for step in steps if "checkout" in step.get("uses", "")]
    assert checkout["persist-credentials"] is False
    inputs = {"base", "head", "requirements", "python-version", "checkout"}
    assert {*ACTION["inputs"]} == inputs


def action(
    step: str, folder: Path, repository: Path, **values: str
) -> tuple[int, str, dict[str, str]]:
    """A step of the action: its exit code, what it said, and its outputs."""
    environment = folder / "environment"
    if not environment.exists():
        (environment / "bin").mkdir(parents=True)
        python = environment / "bin" / "python"
        python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
    output, summary = folder / "output", folder / "summary.md"
    output.write_text("")
    summary.write_text("")
    given = {
        "PYTHONPATH": str(ROOT),
        "WARPWATCH_ENVIRONMENT": str(environment),
        "RUNNER_TEMP": str(folder),
        "GITHUB_OUTPUT": str(output),
        "GITHUB_STEP_SUMMARY": str(summary),
    }
    done = subprocess.run(
        [str(SCRIPT), step],
        cwd=repository,
        env=os.environ | given | values,
        capture_output=True,
        text=True,
        timeout=600,
    )
    found = dict(line.split("=", 1) for line in output.read_text().splitlines())
    return done.returncode, done.stdout + done.stderr + summary.read_text(), found


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A team's repository with a configuration and nothing else of ours."""
    folder = tmp_path / "fastops"
    write(folder, "src/fastops/__init__.py", ONE_LAUNCH)
    write(folder, "warpwatch.toml", CONFIGURATION)
    git(tmp_path, "init", "--quiet", str(folder))
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "gelu")
    return folder


@pytest.mark.slow
def test_a_second_launch_is_red_and_named_in_the_summary(repository: Path, tmp_path: Path) -> None:
    write(repository, "src/fastops/__init__.py", TWO_LAUNCHES)
    git(repository, "commit", "--quiet", "--all", "--message", "twice")
    nothing = "0" * 40  # what GitHub says is before a new branch
    code, said, outputs = action("lane", tmp_path, repository, BASE=nothing, HEAD="HEAD")
    assert (code, outputs) == (1, {"verdict": "failure"}), said
    assert "regressed" in said and "`launches`" in said


@pytest.mark.slow
def test_a_head_that_cannot_be_imported_says_why(repository: Path, tmp_path: Path) -> None:
    """In the log of the lane and in the summary, each once."""
    write(repository, "src/fastops/__init__.py", ONE_LAUNCH + "\nimport fastops_of_nobody\n")
    git(repository, "commit", "--quiet", "--all", "--message", "broken")
    code, said, outputs = action("lane", tmp_path, repository, BASE="HEAD~1", HEAD="HEAD")
    assert (code, outputs) == (1, {"verdict": "failure"}), said
    why = "2 import failed: import fastops: ModuleNotFoundError: No module named 'fastops_of_nobody"
    assert "compiled: 2 of 4 pairs of workload and target measured" in said
    assert f"  {why}" in said
    assert f"- at head: `{why}" in (tmp_path / "summary.md").read_text()


def test_the_cache_s_name_follows_what_is_installed(repository: Path, tmp_path: Path) -> None:
    code, said, first = action("key", tmp_path, repository)
    assert code == 0, said
    assert first["folder"] == str(tmp_path / "environment")
    assert re.fullmatch(r"warpwatch-[0-9a-f]{32}", first["key"])
    assert action("key", tmp_path, repository)[2] == first
    (repository / "needs.txt").write_text("einops==0.8.1\n")
    assert action("key", tmp_path, repository, REQUIREMENTS="needs.txt")[2]["key"] != first["key"]
    assert action("key", tmp_path, repository, REQUIREMENTS="none.txt")[0] != 0


@pytest.mark.parametrize(
    "value", ["$(touch mark)", "`touch mark`", "--upload-pack=touch mark;", "-x"]
)
def test_a_commit_that_looks_like_a_command_is_none(
    repository: Path, tmp_path: Path, value: str
) -> None:
    code, said, outputs = action("lane", tmp_path, repository, BASE=value, HEAD=value)
    assert (code, outputs) == (2, {}) and "expected a commit" in said
    assert not (repository / "mark").exists()
