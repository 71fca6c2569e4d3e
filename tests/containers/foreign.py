"""A team's own repository: a kernel package of another name, in another layout, and its history."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from warpwatch.sandbox import images

ONE_LAUNCH = """
import torch
import triton
import triton.language as tl


@triton.jit
def _gelu(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n).to(tl.float32)
    inner = 0.7978845608 * (v + 0.044715 * v * v * v)
    tl.store(y + at, v / (1 + tl.exp(-2 * inner)), mask=at < n)


def gelu(x):
    y = torch.empty_like(x)
    _gelu[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y
"""
TWO_LAUNCHES = ONE_LAUNCH.replace(
    "    return y", "    _gelu[(1,)](x, y, 0, BLOCK=1024)\n    return y"
)


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=900).stdout


def virtual_environment(folder: Path) -> None:
    """A .venv that is this interpreter, and that make takes for up to date."""
    python = folder / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True, exist_ok=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    stamp = folder / ".venv" / ".stamp"
    stamp.touch()
    os.utime(stamp, (2e9, 2e9))


def foreign_repository(folder: Path) -> Path:
    """The repository ``fastops`` below ``folder``, with two commits and nothing of the harness."""
    (folder / "warpwatch").symlink_to(images.root())
    repository = folder / "fastops"
    package = repository / "src" / "fastops" / "__init__.py"
    package.parent.mkdir(parents=True)
    package.write_text(ONE_LAUNCH)
    git(folder, "init", "--quiet", str(repository))
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", "gelu")
    (package.parent / "notes.txt").write_text("a harmless commit\n")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", "notes")
    virtual_environment(repository)
    return repository
