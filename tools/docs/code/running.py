"""Running the blocks of a page in a folder, as a reader would."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tools.docs.code.blocks import Steps
from tools.root import ROOT

LONGEST_S = 600
_IDENTITY = ("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL")


class BlockError(RuntimeError):
    """A block of a page failed."""


def environment(home: Path) -> dict[str, str]:
    """Make an environment in which ``warpwatch`` is this checkout's.

    Args:
        home: A folder for programs and settings, which is written to.

    Returns:
        Its variables.
    """
    programs = home / "bin"
    programs.mkdir(parents=True, exist_ok=True)
    for name, command in (("python", ""), ("python3", ""), ("warpwatch", " -m warpwatch")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable}{command} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
    kept = ("PATH", "LANG", "WARPWATCH_COMPILER_CACHE", "TRITON_CACHE_DIR", "OMP_NUM_THREADS")
    found = {name: os.environ[name] for name in kept if name in os.environ}
    return {
        **found,
        **dict.fromkeys(_IDENTITY, "reader@localhost"),
        "PATH": os.pathsep.join([str(programs), found.get("PATH", os.defpath)]),
        "PYTHONPATH": str(ROOT),
        "HOME": str(home),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "NO_COLOR": "1",
    }


def run(page: Path, steps: Steps, folder: Path, variables: Mapping[str, str]) -> list[str]:
    """Write the files of a page and run its commands, in order.

    Args:
        page: The page, for errors.
        steps: Its blocks.
        folder: Where they run.
        variables: The environment.

    Returns:
        The output of each command.

    Raises:
        BlockError: A command failed; the error has its line and its output.
    """
    printed = []
    for block in steps.blocks:
        if block.file:
            target = folder / block.file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text, encoding="utf-8")
        elif block.runs:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block.text],
                cwd=folder,
                env=dict(variables),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=LONGEST_S,
            )
            if done.returncode:
                where = f"{page}:{block.line}: exit code {done.returncode}"
                raise BlockError(f"{where}\n{block.text}\n{done.stdout[-4000:]}")
            printed.append(done.stdout)
    return printed
