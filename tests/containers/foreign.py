"""A team's own repository: a kernel package of another name, in another layout, and its history."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
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


# A project that uses all the names that Warpwatch's own repository uses, too.
ITS_OWN = {
    "Makefile": "test:\n\t@echo the tests of fastops\n",
    "constraints.txt": "# fastops needs nothing but Triton\n",
    "pyproject.toml": '[project]\nname = "fastops"\nversion = "1.0"\n',
    ".gitignore": "*.html\n",
    ".github/workflows/ci.yml": "name: ci\non: push\njobs: {}\n",
    "benchmarks/bench_gelu.py": "raise ImportError('nobody but fastops runs this')\n",
    "docker/Dockerfile": "FROM scratch\n",
    "kernels/__init__.py": "raise ImportError('not the kernels of Warpwatch')\n",
}


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=900).stdout


def virtual_environment(folder: Path) -> None:
    """A .venv that is this interpreter, and that make takes for up to date."""
    for name, command in (("python", ""), ("warpwatch", " -m warpwatch")):
        program = folder / ".venv" / "bin" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f'#!/bin/sh\nexec {sys.executable}{command} "$@"\n')
        program.chmod(0o755)
    _up_to_date(folder / ".venv")


def _up_to_date(environment: Path) -> None:
    stamp = environment / ".stamp"
    stamp.touch()
    os.utime(stamp, (2e9, 2e9))


def source_of_wheel(folder: Path) -> Path:
    """A copy of all that the wheel is made from: a build leaves files where it runs."""
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(images.root() / name, source)
    for name in ("warpwatch", "docker", ".github"):
        skip = shutil.ignore_patterns("__pycache__")
        shutil.copytree(images.root() / name, source / name, ignore=skip)
    return source


def built_wheel(folder: Path) -> Path:
    """The wheel of this checkout, built below ``folder``."""
    source = source_of_wheel(folder)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    if importlib.util.find_spec("setuptools"):
        command.append("--no-build-isolation")  # spares a download
    command += ["--wheel-dir", str(folder), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (wheel,) = folder.glob("warpwatch-*.whl")
    return wheel


def install(wheel: Path, repository: Path) -> Path:
    """The environment of ``docker/targets.mk``, up to date: the wheel, and what this interpreter
    has beside it, but not this checkout. Gives the folder of its programs."""
    place = repository / ".warpwatch-venv"
    venv.create(place, symlinks=True)
    python = place / "bin" / "python"
    (site,) = place.glob("lib/python*/site-packages")
    (site / "beside.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    command += ["--no-deps", "--no-index", str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    _up_to_date(place)
    return place / "bin"


def write(repository: Path, name: str, text: str) -> None:
    (repository / name).parent.mkdir(parents=True, exist_ok=True)
    (repository / name).write_text(text)


def foreign_repository(folder: Path, wheel: Path) -> Path:
    """The repository ``fastops`` below ``folder``: two commits, nothing of the harness in git, and
    the harness installed in its environment."""
    repository = folder / "fastops"
    for name, text in ITS_OWN.items():
        write(repository, name, text)
    write(repository, "src/fastops/__init__.py", ONE_LAUNCH)
    git(folder, "init", "--quiet", str(repository))
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", "gelu")
    write(repository, "src/fastops/notes.txt", "a harmless commit\n")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", "notes")
    install(wheel, repository)
    with (repository / ".git" / "info" / "exclude").open("a") as file:
        file.write("/.warpwatch-venv/\n")
    return repository
