"""`make setup` says in one line what a machine lacks, before it fetches anything."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.root import ROOT

LINUX = "echo Linux"
OLD = 'case "$1" in -V) echo "Python 3.10.2";; *) exit 1;; esac'


@pytest.mark.parametrize(
    ("system", "python", "said"),
    [
        ("echo Darwin", "exit 0", "error: Linux is needed to measure, this is Darwin: "),
        (LINUX, OLD, "error: Python 3.11 or later is needed, python3 is Python 3.10.2; try make"),
    ],
    ids=["another system", "an old Python"],
)
def test_what_cannot_measure_is_refused(
    tmp_path: Path, system: str, python: str, said: str
) -> None:
    for name, text in (("uname", system), ("python3", python)):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment.pop("MAKEFLAGS", None)
    venv = tmp_path / "venv"
    done = subprocess.run(
        ["make", "--no-print-directory", "setup", f"VENV={venv}", "PYTHON=python3"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr.startswith(said), done.stderr
    assert not venv.exists()
