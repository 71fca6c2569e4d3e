"""Writes the hashed locks in docker/locks from docker/constraints.txt: ``python -m tools.locks``.

Needs ``uv`` on the PATH and a package index. A lock holds everything that is installed for one use,
each file by its hash. torch has two builds: the index of PyTorch keeps that without CUDA, which a
resolver does not see, so its hashes stand here and are added.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = ROOT / "docker" / "constraints.txt"
LOCKS = ROOT / "docker" / "locks"
_READ = ("jinja2", "msgspec", "numpy", "scipy")
# Each use, with its packages; `None` is all of docker/constraints.txt.
USES: dict[str, tuple[str, ...] | None] = {
    "reports": _READ,
    "gpu": (*_READ, "docker"),
    "compile": (*_READ, "asv", "asv-runner", "setuptools", "torch", "triton"),
    "development": None,
    "image": None,  # on the vendors' bases, which bring torch and Triton
}
# torch's build for Linux on x86-64 without CUDA, for Python 3.11 to 3.14.
CPU_BUILDS = {
    "2.13.0": (
        "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b",
        "4ca4a9394b0c771238a4f73590fdbbc4debad85ed0fa63d026ae1b085da7d6e2",
        "3fbf9c9d1f3c10c2d59d04aca426dee9ccc6ceb32d255c61e93acc3b4f75fae6",
        "d20fa53ee744502fa4c69818a720b05ca0d37abd055d4f6e66cae155114bc691",
    ),
}
# What the build with CUDA needs as well, and the other one must not bring along.
_CUDA = re.compile(r"(?:nvidia|cuda)-")


def main() -> int:
    """0 when the locks are written."""
    argparse.ArgumentParser(
        prog="python -m tools.locks", description=__doc__, allow_abbrev=False
    ).parse_args()
    pinned = [line for line in CONSTRAINTS.read_text("utf-8").splitlines() if "==" in line]
    digest = hashlib.sha256(CONSTRAINTS.read_bytes()).hexdigest()
    cuda: list[str] = []
    for use, names in USES.items():
        wanted = pinned if names is None else list(names)
        if use == "image":
            wanted = [line for line in pinned if not line.startswith(("torch==", "triton=="))]
        entries = split(resolved(wanted))
        kept = [entry for entry in entries if not _CUDA.match(entry)]
        cuda = cuda or [entry for entry in entries if _CUDA.match(entry)]
        write(use, digest, [with_cpu_builds(entry) for entry in kept])
    write("cuda", digest, cuda)
    # A constraint: pip prefers a file whose hash the index tells before it is fetched, and that may
    # be the other build.
    write("cpu", digest, [line + "+cpu" for line in pinned if line.startswith("torch==")])
    return 0


def resolved(requirements: list[str]) -> str:
    """What is installed for them on Linux, by every Python that is supported, with hashes."""
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "in.txt", Path(folder) / "out.txt"
        source.write_text("\n".join([*requirements, ""]), encoding="utf-8")
        command = ["uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11"]
        command += ["--generate-hashes", "--no-header", "--no-annotate"]
        command += ["--constraints", str(CONSTRAINTS), "--output-file", str(out), str(source)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"uv: {done.stderr.strip()}")
        return out.read_text(encoding="utf-8")


def split(text: str) -> list[str]:
    """The entries of a lock, each with the lines of its hashes."""
    return [entry.strip() for entry in re.split(r"\n(?=\S)", text) if entry.strip()]


def with_cpu_builds(entry: str) -> str:
    """torch's entry with the hashes of its other build."""
    match = re.match(r"torch==([\w.]+)", entry)
    if match is None:
        return entry
    hashes = CPU_BUILDS.get(match[1])
    if hashes is None:
        sys.exit(f"tools/locks.py: CPU_BUILDS has no torch {match[1]}: add the hashes of its index")
    return " \\\n".join([entry, *(f"    --hash=sha256:{one}" for one in hashes)])


def write(use: str, digest: str, entries: list[str]) -> None:
    """One lock; its second line says which constraints it was made from."""
    head = ["# Written by `python -m tools.locks`; do not edit.", f"# constraints {digest}", ""]
    LOCKS.mkdir(exist_ok=True)
    (LOCKS / f"{use}.txt").write_text("\n".join([*head, *entries, ""]), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
