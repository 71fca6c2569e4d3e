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
OPS = """import torch
import triton
import triton.language as tl


@triton.jit
def _twice(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def twice(x):
    y = torch.empty_like(x)
    for _ in range({launches}):
        _twice[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y
"""
CONFIGURATION = """targets = ["sm_90"]
[package]
name = "ops"
path = "ops"
[[workload]]
name = "twice"
call = "ops:twice"
args = "bf16[4096]"
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits, of which the last one launches twice, and a remote."""
    folder = tmp_path / "ops"
    (folder / "ops").mkdir(parents=True)
    (folder / "warpwatch.toml").write_text(CONFIGURATION, "utf-8")
    (folder / ".gitignore").write_text("/.asv/\n/.trusted/\n/site/\n", "utf-8")
    strangers.git(folder, "init", "--quiet", "--initial-branch", "main")
    for number, launches in enumerate((1, 2)):
        text = OPS.format(launches=launches) + f"# {number}\n"
        (folder / "ops" / "__init__.py").write_text(text, "utf-8")
        strangers.git(folder, "add", "--all")
        strangers.git(folder, "commit", "--quiet", "--message", f"Commit {number}")
    remote = str(tmp_path / "remote.git")
    strangers.git(folder, "init", "--quiet", "--bare", "--initial-branch", "main", remote)
    strangers.git(folder, "remote", "add", "origin", remote)
    strangers.git(folder, "push", "--quiet", "origin", "main")
    return folder


@pytest.mark.slow
def test_each_command_of_the_page_works_and_the_site_has_the_finding(repository: Path) -> None:
    environment = {**os.environ, "HOME": str(repository)}  # asv's file of machines lies there
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
    assert "twice" in (repository / "site" / "feed.atom").read_text("utf-8")
    assert (repository / "site" / "index.html").is_file()
