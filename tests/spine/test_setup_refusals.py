"""`make setup` says in one line what a machine lacks, and can set up several things at once."""

from __future__ import annotations

import os
import re
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


def test_what_is_set_up_at_once_shares_no_folder() -> None:
    """`python -m venv` fails where another process has just made a folder above its own."""
    environment = os.environ.copy()
    environment.pop("MAKEFLAGS", None)
    planned = subprocess.run(
        ["make", "--dry-run", "--always-make", "setup-tools", "setup", "VENV=.planned"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    made = {Path(folder) for folder in re.findall(r"-m venv (?:--\S+ )*(\S+)", planned)}
    assert len(made) >= 3
    assert not [folder for folder in made if made & set(folder.parents)]
