"""What the tests of workflows share: a remote that can be pushed to."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


@pytest.fixture
def remote(tmp_path: Path) -> str:
    path = tmp_path / "remote.git"
    subprocess.run(["git", "init", "--quiet", "--bare", str(path)], check=True)
    return str(path)
