"""Assemblers that wheels carry: NVIDIA's own package of ``ptxas``, or another Triton's copy of it.

Triton writes its PTX for the release of the assembler that it finds. To give several the same PTX,
each is called through a small script that reports the lowest release among them.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from warpwatch import project
from warpwatch.config.targets import Target

from . import sides

_WHEEL = re.compile(r"(?P<package>triton|nvidia-cuda-nvcc(?:-cu\d+)?)==(?P<version>\d+(?:\.\d+)+)")
_RELEASE = re.compile(r"release (\d+)\.(\d+)")
# Triton has one of its own for Blackwell, from 3.6 on.
_TOOLS = {"TRITON_PTXAS_PATH": "ptxas", "TRITON_PTXAS_BLACKWELL_PATH": "ptxas-blackwell"}
_BLACKWELL = 100


@dataclass(frozen=True)
class Assembler:
    """``paths`` are the programs by the variable that names each to Triton."""

    label: str
    paths: Mapping[str, Path]

    def knows(self, target: Target) -> bool:
        """Whether it makes code for a target of NVIDIA."""
        assert isinstance(target.arch, int)
        new = target.arch >= _BLACKWELL
        said = _said(self.paths[list(_TOOLS)[1 if new else 0]], "--help")
        return f"'{target.name}'" in said

    def environment(self, releases: Mapping[str, tuple[int, int]]) -> dict[str, str]:
        """What a process needs to assemble with it.

        Args:
            releases: The release that each program reports, by its variable.

        Returns:
            Variables of Triton, which name scripts below ``.asv/assemblers``.
        """
        found = {}
        for variable, path in self.paths.items():
            release = ".".join(map(str, releases[variable]))
            digest = hashlib.sha256(f"{path} {release}".encode()).hexdigest()[:16]
            place = _folder() / "programs" / digest
            found[variable] = str(_script(path, release, place))
        return found


def named(name: str) -> Assembler:
    """Find an assembler, and install its wheel where that is missing.

    Args:
        name: ``nvidia-cuda-nvcc==13.0.88``, ``nvidia-cuda-nvcc-cu12==12.8.93``, ``triton==3.9.0``,
            or the path of a ``ptxas``.

    Returns:
        The assembler.

    Raises:
        ValueError: The name is none of these, or the wheel cannot be had.
    """
    wheel = _WHEEL.fullmatch(name)
    if wheel and wheel["package"] == "triton":
        folder = sides.triton_folder(wheel["version"])
        programs = _of_triton(folder)
        return Assembler(name, programs)
    if wheel:
        folder = sides.installed_alone(name, _folder() / f"{wheel['package']}-{wheel['version']}")
        found = sorted(folder.glob("**/bin/ptxas"))
        if not found:
            raise ValueError(f"{name}: expected a wheel with bin/ptxas, this one has none")
        return Assembler(name, dict.fromkeys(_TOOLS, found[0]))
    path = Path(name)
    if path.is_file() and os.access(path, os.X_OK):
        return Assembler(name, dict.fromkeys(_TOOLS, path.resolve()))
    raise ValueError(
        "expected nvidia-cuda-nvcc==VERSION, nvidia-cuda-nvcc-cu12==VERSION, triton==VERSION or "
        f"the path of a ptxas, got {name!r}"
    )


def lowest(assemblers: Iterable[Assembler]) -> dict[str, tuple[int, int]]:
    """The lowest release among several, by the variable that names a program to Triton."""
    every = list(assemblers)
    return {variable: min(_release(one.paths[variable]) for one in every) for variable in _TOOLS}


def _of_triton(folder: Path | None) -> dict[str, Path]:
    if folder is None:
        import triton

        root = Path(triton.__file__).parent
    else:
        root = folder / "triton"
    programs = {
        variable: root / "backends" / "nvidia" / "bin" / tool for variable, tool in _TOOLS.items()
    }
    plain = programs["TRITON_PTXAS_PATH"]
    return {variable: path if path.exists() else plain for variable, path in programs.items()}


def _release(path: Path) -> tuple[int, int]:
    found = _RELEASE.search(_said(path, "--version"))
    if found is None:
        raise ValueError(f"{path}: expected an assembler that states its release, it does not")
    return int(found[1]), int(found[2])


def _said(path: Path, option: str) -> str:
    try:
        return subprocess.run([path, option], capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ValueError(f"{path}: cannot be run: {error}") from error


def _script(path: Path, release: str, folder: Path) -> Path:
    """A program like ``path`` that reports ``release``. The rest of what it reports is as it was,
    so that kept kernels of several assemblers are not taken for each other's."""
    program = shlex.quote(str(path))
    text = (
        "#!/bin/sh\n"
        'if [ "$1" = --version ]; then\n'
        f"    {program} --version | sed 's/release [0-9.]*/release {release}/'\n"
        "else\n"
        f'    exec {program} "$@"\n'
        "fi\n"
    )
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / "ptxas"
    if not place.exists() or place.read_text(encoding="utf-8") != text:
        partial = folder / f"ptxas.{os.getpid()}"
        partial.write_text(text, encoding="utf-8")
        partial.chmod(0o755)
        partial.rename(place)
    return place


def _folder() -> Path:
    return project.folder() / ".asv" / "assemblers"
