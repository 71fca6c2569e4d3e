"""The commands of docs/guides/publish.md, as they stand there, over a repository with a remote."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spine import strangers
from tools.docs.code.blocks import read
from warpwatch.sandbox import images

PAGE = images.root() / "docs" / "guides" / "publish.md"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits, of which the second copies its input first, and a remote."""
    commits = (strangers.OPS, "Add gelu"), (strangers.COPIES, "Copy first")
    folder = strangers.configured(tmp_path / "repository", *commits)
    remote = str(tmp_path / "remote.git")
    strangers.git(folder, "init", "--quiet", "--bare", "--initial-branch", "main", remote)
    strangers.git(folder, "remote", "add", "origin", remote)
    strangers.git(folder, "push", "--quiet", "origin", "main")
    return folder


@pytest.mark.slow
def test_each_command_of_the_page_works_and_the_site_has_the_finding(repository: Path) -> None:
    environment = strangers.environment_of(repository)
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    steps = [block for block in read(PAGE).blocks if block.runs]
    assert len(steps) == 3
    for block in steps:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.text],
            cwd=repository,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    machine = images.get("cpu").machine
    assert {path.name for path in (repository / ".trusted" / "results").iterdir()} >= {machine}
    found = json.loads((repository / "site" / "regressions.json").read_text("utf-8"))
    assert any(one["status"] == "open" for one in found["findings"])
    assert "gelu" in (repository / "site" / "feed.atom").read_text("utf-8")
    assert (repository / "site" / "index.html").is_file()
