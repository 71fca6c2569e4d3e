"""A marker named in WARPWATCH_MUST_RUN turns a skip into a failure, so CI cannot pass by luck."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = """
import pytest

@pytest.mark.browser
def test_skipped():
    pytest.skip("no browser today")

def test_other():
    pytest.skip("for another reason")
"""


def run(tmp_path: Path, must_run: str) -> subprocess.CompletedProcess[str]:
    conftest = Path(__file__).parents[1] / "conftest.py"
    (tmp_path / "conftest.py").write_text(conftest.read_text())
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = browser: b\n")
    browser = tmp_path / "chromium"
    browser.write_text("#!/bin/sh\n")
    browser.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(tmp_path)],
        env={**os.environ, "WARPWATCH_MUST_RUN": must_run, "PATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def test_a_skip_is_a_skip_where_nothing_is_demanded(tmp_path: Path) -> None:
    result = run(tmp_path, "")
    assert result.returncode == 0
    assert "2 skipped" in result.stdout


def test_a_demanded_marker_fails_when_skipped(tmp_path: Path) -> None:
    result = run(tmp_path, "browser")
    assert result.returncode == 1
    assert "must run here" in result.stdout
    assert "no browser today" in result.stdout
    assert "1 failed, 1 skipped" in result.stdout
