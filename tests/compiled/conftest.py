"""A project of somebody's own under the harness: two kernels, two commits, measured by asv."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

KERNELS = """
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, y, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + o, tl.load(x + o, mask=o < n) * 2, mask=o < n)


@triton.jit
def gram_kernel(x, y, K: tl.constexpr):
    o = tl.arange(0, 64)
    b_y = tl.zeros((64, 64), tl.float32)
    for k in range(0, K, 64):
        b_x = tl.load(x + o[:, None] * K + k + o[None, :])
        b_y = tl.dot(b_x, b_x.T, b_y)
    tl.store(y + o[:, None] * 64 + o[None, :], b_y)


def scale(x):
    y = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


def gram(x):
    y = torch.empty((64, 64), device=x.device)
    gram_kernel[(1,)](x, y, x.shape[1])
    return y
"""
ONCE = "    scale_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)\n"

WORKLOADS = """
from dataclasses import dataclass

from warpwatch.workload.base import Workload


@dataclass(frozen=True, kw_only=True)
class Own(Workload):
    shape: tuple

    @property
    def name(self):
        return f"{self.kernel}-" + "x".join(map(str, self.shape))

    @property
    def flops(self):
        return 1000

    @property
    def bytes_moved(self):
        return 1000

    def inputs(self, device, seed=0, values="random"):
        import torch

        dtype = torch.float16 if self.kernel == "gram" else torch.float32
        return {"x": torch.empty(self.shape, dtype=dtype, device=device)}

    def call(self, inputs):
        import own

        return getattr(own, self.kernel)(inputs["x"])

    def reference(self, inputs, dtype=None):
        return inputs["x"] * 2


def _make(kernel, *shape):
    return Own(kernel=kernel, group="own", dtype="fp32", shape=shape)


_ALL = (_make("scale", 5000), _make("gram", 64, 256), _make("scale", 9000))


def all_workloads():
    return _ALL


def get(name):
    for one in _ALL:
        if one.name == name:
            return one
    raise ValueError(f"unknown workload {name!r}: did you mean {_ALL[0].name}?")


def select(**_):
    return _ALL


def fixed_set():  # without the last
    return ((_ALL[0], "sm_90"), (_ALL[0], "gfx942"), (_ALL[1], "sm_90"))
"""

# On the path of a process, it makes a machine without Triton and torch of any other.
NO_COMPILER = """
import sys


class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "triton"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Absent())
"""


@dataclass(frozen=True)
class Project:
    """A checkout with the harness and a package of its own. ``commits`` are old and new; a third
    on top of them does not touch the package, and is not measured."""

    folder: Path
    home: Path
    commits: tuple[str, str]

    @property
    def results(self) -> Path:
        return self.folder / ".asv" / "results"

    def benchmarks(
        self, *arguments: str | Path, compilers: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """``warpwatch ...`` in the project, with or without Triton and torch."""
        path = [os.environ.get("PYTHONPATH", "")] if compilers else [str(self.home / "absent")]
        return subprocess.run(
            [sys.executable, "-m", "warpwatch", *map(str, arguments)],
            cwd=self.folder,
            env={**os.environ, "HOME": str(self.home), "PYTHONPATH": os.pathsep.join(path)},
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Measured by ``warpwatch history``: results and evidence of both commits."""
    home = tmp_path_factory.mktemp("home")
    folder = tmp_path_factory.mktemp("own") / "project"
    ignored = shutil.ignore_patterns("__pycache__", "published", "html")
    for name in ("benchmarks", "warpwatch"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    shutil.copy(ROOT / "asv.conf.json", folder)
    (folder / "own_workloads.py").write_text(WORKLOADS)
    (folder / "warpwatch.toml").write_text(
        '[package]\nname = "own"\npath = "own"\nworkloads = "own_workloads"\n'
        'workloads_folder = "."\n'
    )
    (folder / ".gitignore").write_text(".asv\n__pycache__\n")
    (home / "absent").mkdir()
    (home / "absent" / "sitecustomize.py").write_text(NO_COMPILER)
    git = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    subprocess.run([*git, "init", "-q", "-b", "main"], check=True, timeout=120)
    (folder / "own").mkdir()
    commits = []
    for second, source in enumerate((KERNELS, KERNELS.replace(ONCE, 2 * ONCE))):
        (folder / "own" / "__init__.py").write_text(source)
        subprocess.run([*git, "add", "."], check=True, timeout=120)
        date = f"2026-01-01T00:00:{second:02d}Z"
        dates = {**os.environ, "GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        subprocess.run([*git, "commit", "-qm", str(second)], check=True, env=dates, timeout=120)
        head = subprocess.run(
            [*git, "rev-parse", "HEAD"], check=True, capture_output=True, timeout=120
        )
        commits.append(head.stdout.decode().strip())
    made = Project(folder, home, (commits[0], commits[1]))
    one_metric = ("--bench", "track_launches")  # evidence holds all of them anyway
    done = made.benchmarks("history", "--commits", "0", "--machine", "here", *one_metric)
    assert done.returncode == 0, done.stderr
    (folder / "README").write_text("Two kernels.\n")
    subprocess.run([*git, "add", "README"], check=True, timeout=120)
    subprocess.run([*git, "commit", "-qm", "a README"], check=True, timeout=120)
    return made
