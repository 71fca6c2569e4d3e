"""Small packages of other people, in the layouts that they have."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

OPS = """import torch
import triton
import triton.language as tl


@triton.jit
def _gelu(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n).to(tl.float32)
    y = 0.5 * x * (1 + tl.erf(x * 0.7071067811865475))
    tl.store(y_ptr + i, y.to(y_ptr.dtype.element_ty), mask=i < n)


def gelu(x):
    y = torch.empty_like(x)
    _gelu[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


def wants_a_dictionary(options):
    return gelu(options["x"])
"""
COPIES = OPS.replace(
    "    y = torch.empty_like(x)", "    x = x.clone()\n    y = torch.empty_like(x)"
)

CONFIGURATION = """targets = ["sm_90"]
[package]
name = "ops"
path = "ops"
[[workload]]
name = "gelu"
call = "ops:gelu"
args = "bf16[4096]"
"""


@dataclass(frozen=True)
class Layout:
    """Where a package lies: its import name, its folder, and folders without ``__init__.py``."""

    name: str
    path: str


LAYOUTS = {
    "flat": Layout("fastops", "fastops"),
    "src": Layout("fastops", "src/fastops"),
    "namespace": Layout("company.fastops", "src/company/fastops"),
}


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b.invalid")
    done = subprocess.run(
        ["git", *who, *arguments],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout.strip()


def repository(folder: Path, layout: Layout) -> Path:
    """A repository of two commits: the second copies its input first."""
    package = folder / layout.path
    (package / "ops").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "ops" / "__init__.py").touch()
    git(folder, "init", "--quiet", "--initial-branch", "main")
    for text, subject in ((OPS, "Add gelu"), (COPIES, "Copy first")):
        (package / "ops" / "activation.py").write_text(text, encoding="utf-8")
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--message", subject)
    return folder


def configured(folder: Path, *commits: tuple[str, str], configuration: str = CONFIGURATION) -> Path:
    """A repository whose package ``ops`` is one module: its text and the subject of each commit."""
    (folder / "ops").mkdir(parents=True)
    (folder / "warpwatch.toml").write_text(configuration, "utf-8")
    git(folder, "init", "--quiet", "--initial-branch", "main")
    for text, subject in commits:
        (folder / "ops" / "__init__.py").write_text(text, "utf-8")
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--message", subject)
    return folder


def environment_of(folder: Path) -> dict[str, str]:
    """That of somebody whose home is the repository: asv's file of machines lies there."""
    environment = {**os.environ, "HOME": str(folder)}
    environment.pop("WARPWATCH_CONFIG", None)
    return environment
