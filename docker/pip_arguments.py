"""Says how pip installs for one use: ``python docker/pip_arguments.py compile``.

Prints pip's arguments: the hashed lock of the use, and where torch's build comes from. Without an
NVIDIA GPU that is the build without CUDA, of 0.2 GB; the other one brings 2.8 GB. Needs nothing
but Python, and is run before anything is installed.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import urllib.request
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
CPU_INDEX = os.environ.get("WARPWATCH_CPU_INDEX", "https://download.pytorch.org/whl/cpu")
NVIDIA = Path(os.environ.get("WARPWATCH_NVIDIA_NODE", "/dev/nvidiactl"))
# What reads results and talks to an engine is of Warpwatch's choosing, whatever a project measures.
OWN = ("reports", "gpu")
_TIMEOUT_S = 5.0
_PIP_TIMEOUT_S = 120.0
_BUILDS = (
    ["--constraint", str(FOLDER / "locks" / "cpu.txt")],
    ["--requirement", str(FOLDER / "locks" / "cuda.txt")],
)


def arguments(use: str) -> list[str]:
    """pip's arguments for a use; notices go to stderr."""
    constraints = FOLDER / "constraints.txt"
    lock = FOLDER / "locks" / f"{use}.txt"
    text = lock.read_text(encoding="utf-8")
    digest = hashlib.sha256(constraints.read_bytes()).hexdigest()
    if use in OWN or f"# constraints {digest}\n" in text:
        return ["--require-hashes", "--requirement", str(lock), *where_torch_is(text, _BUILDS)]
    print(
        f"{constraints} was edited since the locks were written: installing it without hashes",
        file=sys.stderr,
    )
    pins = re.findall(r"^[A-Za-z0-9][^#\s]*", constraints.read_text("utf-8"), re.MULTILINE)
    if use == "image":  # the base's own torch and Triton stay
        return [pin for pin in pins if not re.match(r"(torch|triton)==", pin)]
    return [*pins, *where_torch_is("\n".join(pins), ([], []))]


def where_torch_is(text: str, builds: tuple[list[str], list[str]]) -> list[str]:
    """pip's arguments for torch, of the two for builds without and with CUDA."""
    small, large = builds
    match = re.search(r"^torch==([\w.]+)", text, re.MULTILINE)
    if match is None:
        return []
    if NVIDIA.exists() or platform.machine() not in ("x86_64", "AMD64"):
        return large  # of other processors the locks know the one build that the index has
    if "+cpu" in pip_would_take(match[1]):
        return small
    if answers(CPU_INDEX):
        return [*small, "--extra-index-url", CPU_INDEX]
    print(f"{CPU_INDEX} does not answer: torch with CUDA is installed, 2.8 GB", file=sys.stderr)
    return large


def pip_would_take(version: str) -> str:
    """The build of torch that pip finds by its own settings."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--no-deps"]
    command += ["--ignore-installed", "--report", "-", f"torch=={version}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PIP_TIMEOUT_S)
        return str(json.loads(done.stdout)["install"][0]["metadata"]["version"])
    except (ValueError, LookupError, subprocess.TimeoutExpired):
        return ""


def answers(index: str) -> bool:
    """Whether the index has torch: pip would ask one that does not for each package, and wait."""
    try:
        with urllib.request.urlopen(f"{index}/torch/", timeout=_TIMEOUT_S) as answer:
            return bool(answer.status == 200)
    except (OSError, ValueError):
        return False


if __name__ == "__main__":
    print(shlex.join(arguments(sys.argv[1])))
