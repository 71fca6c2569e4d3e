"""The cubins in a file: one by itself, or those that a program, a library or a fatbin carries."""

from __future__ import annotations

import resource
import struct
import subprocess
import tempfile
from pathlib import Path

from warpwatch.instruments.compiled.formats import elf

SUFFIXES = (".cubin", ".fatbin", ".o", ".so")
_MOST_BYTES = 512 * 2**20
_MOST_SECONDS = 120
_MACHINE_AMD = 224
_FATBIN = struct.pack("<I", 0xBA55ED50)
_NOTHING = "does not contain device code"  # says cuobjdump
_TAKE_OUT = "take out one cubin: cuobjdump -xelf NAME"


def is_named(text: str) -> bool:
    """Whether ``text`` is meant as a file, and not as a callable, a workload or a commit."""
    return Path(text).suffix in SUFFIXES and ":" not in text


def cubins(path: Path) -> list[bytes]:
    """Read the cubins that a file holds.

    Args:
        path: A cubin, or a fatbin, an object or a library that carries some.

    Returns:
        Each as it is in the file, decompressed.

    Raises:
        ValueError: There is no such file, it holds none, or it is too large.
    """
    if not path.is_file():
        raise ValueError(f"{path}: expected a file that holds cubins, and there is no such file")
    size = path.stat().st_size
    if size > _MOST_BYTES:
        raise ValueError(f"{path} has {size:,} bytes, more than {_MOST_BYTES:,}: {_TAKE_OUT}")
    with path.open("rb") as file:
        content = file.read(_MOST_BYTES)
    if content[: len(_FATBIN)] == _FATBIN:
        return _taken_out(path)
    try:
        header, _ = elf.sections(content)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    machine = header[2]
    if machine == elf.MACHINE_CUDA:
        return [content]
    if machine == _MACHINE_AMD:
        raise ValueError(
            f"{path} is AMD's machine code: only NVIDIA's can be read from a file, since Triton "
            "brings no disassembler for AMD's; name the function that launches the kernel"
        )
    return _taken_out(path)


def _taken_out(path: Path) -> list[bytes]:
    """The same of a file that carries cubins among other things, which may be compressed."""
    from triton import knobs

    with tempfile.TemporaryDirectory(prefix="cubins-") as folder:
        command = [knobs.nvidia.cuobjdump.path, "-xelf", "all", str(path.resolve())]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_MOST_SECONDS,
                preexec_fn=_bounded,
            )
        except subprocess.TimeoutExpired:
            raise ValueError(
                f"{path}: cuobjdump has not ended after {_MOST_SECONDS} s: {_TAKE_OUT}"
            ) from None
        found = [one.read_bytes() for one in sorted(Path(folder).glob("*.cubin"))]
    if done.returncode and _NOTHING not in done.stderr + done.stdout:
        said = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
        raise ValueError(f"{path}: cuobjdump cannot read it: {said[-1][:200]}")
    if not found:
        raise ValueError(
            f"{path} holds no cubin: expected machine code, which nvcc writes with -cubin or "
            "-gencode arch=compute_90,code=sm_90; PTX is compiled on the machine that runs it"
        )
    return found


def _bounded() -> None:
    """A small file may decompress to a large one."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_BYTES, _MOST_BYTES))
