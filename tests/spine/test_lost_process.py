"""A process of `make test` that dies fails the run by its test's name, and does not hang it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

MAKEFILE = Path(__file__).parents[2] / "Makefile"
DIES = """
import os
import signal
from pathlib import Path

def test_before():
    pass

def test_that_dies():
    first = Path(__file__).with_suffix(".died")
    if not first.exists():
        first.touch()
        os.kill(os.getpid(), signal.SIGKILL)
"""
PASSES = """
import pytest

@pytest.mark.parametrize("i", range(3))
def test_passes(i):
    pass
"""


def test_a_process_that_dies_ends_the_run(tmp_path: Path) -> None:
    """Dealt again, files that the dead process had finished keep the others idle for ever: so it
    has finished some, and more are left."""
    (options,) = re.findall(r"pytest (-n 3 (?:[^&]|\\\n)*?) \\\n\s*--ignore", MAKEFILE.read_text())
    for i in range(40):
        (tmp_path / f"test_{i:02}.py").write_text(DIES if i == 30 else PASSES)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options.split()]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "crashed while running 'test_30.py::test_that_dies'" in done.stdout
