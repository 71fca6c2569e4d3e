"""What a cubin says of each of its kernels, and what it cannot say: launches, and what they take.

The figures are those of a recorded launch, by the same readers.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from warpwatch import devices
from warpwatch.config import targets
from warpwatch.instruments.compiled.formats import elf
from warpwatch.instruments.compiled.formats.code import Program
from warpwatch.instruments.compiled.formats.job import Job
from warpwatch.instruments.compiled.machine_code import (
    cubins,
    identity,
    occupancy,
    sass,
    unwritten_registers,
)
from warpwatch.instruments.compiled.measure.jobs import Result
from warpwatch.instruments.compiled.measure.reading import Code, async_copy_level

from . import containers
from .names import readable

_MOST_KERNELS = 1000
_FUNCTION, _ENTRY = 2, 0x10  # of a symbol: its kind, and that it can be launched
# Of .nv.info: which threads a block has, at most or exactly; stack and registers of functions.
_MOST_THREADS, _THREADS, _STACK, _REGISTERS = 0x05, 0x10, 0x11, 0x2F
# Where this section is, the first of a block's shared memory belongs to the driver.
_RESERVED, _RESERVED_BYTES = ".nv.shared.reserved.0", 1024
_WARP, _MOST_IN_A_BLOCK, _MOST_SHARED = 32, 1024, 232_448


@dataclass(frozen=True)
class Given:
    """What the user says of launches: the threads of a block, where the file does not state them,
    and the bytes of shared memory that a launch adds; ``None`` where that is not known."""

    threads: int | None = None
    shared: int | None = None

    def __post_init__(self) -> None:
        for option, value, least, most in (
            ("--threads", self.threads, 1, _MOST_IN_A_BLOCK),
            ("--shared", self.shared, 0, _MOST_SHARED),
        ):
            if value is not None and not least <= value <= most:
                raise ValueError(f"{option}: expected {least} to {most:,}, got {value:,}")


@dataclass(frozen=True)
class _Kernel:
    """One kernel, as the tables of its cubin have it."""

    name: str
    body: bytes
    registers: int
    stack_bytes: int
    static_bytes: int
    exact_threads: int  # 0 where it may have any number
    most_threads: int  # 0 where the source sets no bound


def of_file(path: Path, given: Given, chosen: Collection[str] = ()) -> list[Result]:
    """Read every kernel of the cubins in a file.

    Args:
        path: A cubin, or a fatbin, an object or a library that carries some.
        given: What is known of launches.
        chosen: The targets that are wanted; none: all.

    Returns:
        One result a kernel and target, named by its symbol, in the order of the file. A second
        one of a name is followed by its number.

    Raises:
        ValueError: The file cannot be read, or it holds no such kernel.
    """
    found: dict[tuple[str, str], list[Result]] = {}
    left_out: set[str] = set()
    for cubin in containers.cubins(path):
        try:
            header, sections = elf.sections(cubin)
            target, inside = _target(header), _kernels(sections)
            if inside and chosen and target not in chosen:
                left_out.add(target)
                continue
            results = _read(cubin, target, inside, given)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        for one in results:
            alike = found.setdefault((one.job.name, one.job.target), [])
            if all(one.code.keys() != other.code.keys() for other in alike):
                again = f" {len(alike) + 1}" if alike else ""
                alike.append(replace(one, job=Job(one.job.name + again, one.job.target)))
    if not found:
        if left_out:
            raise ValueError(
                f"{path} holds no kernel for {', '.join(chosen)}: "
                f"expected --target {' or '.join(sorted(left_out))}"
            )
        raise ValueError(f"{path} holds no kernel: expected a function with __global__")
    return [one for alike in found.values() for one in alike]


def _read(cubin: bytes, target: str, kernels: Sequence[_Kernel], given: Given) -> list[Result]:
    if len(kernels) > _MOST_KERNELS:
        raise ValueError(f"{len(kernels):,} kernels in one cubin: at most {_MOST_KERNELS:,}")
    if not kernels:
        return []
    parts = cubins.parts(sass.disassemble(cubin))
    return [_result(one, target, parts.get(f".text.{one.name}", ""), given) for one in kernels]


def _target(header: Sequence[Any]) -> str:
    """Of the flags of the header: its second byte since the eighth version of the format."""
    version, flags = header[0][8], header[7]
    return f"sm_{(flags >> 8 if version >= 8 else flags) & 0xFF}"


def _kernels(sections: Sequence[elf.Section]) -> list[_Kernel]:
    by_name = {one.name: one for one in sections}
    symbols = elf.symbols(sections)
    stated: dict[tuple[int, int], int] = {}
    for name, value in elf.attributes(by_name[".nv.info"].body) if ".nv.info" in by_name else ():
        if len(value) == 8:
            symbol, number = struct.unpack("<II", value)
            stated[name, symbol] = number
    reserved = _RESERVED_BYTES if _RESERVED in by_name else 0
    found = []
    for number, one in enumerate(symbols):
        text = by_name.get(f".text.{one.name}")
        if one.info & 0xF != _FUNCTION or not one.other & _ENTRY or text is None:
            continue
        info = by_name.get(f".nv.info.{one.name}")
        shared = by_name.get(f".nv.shared.{one.name}")
        found.append(
            _Kernel(
                one.name,
                text.body,
                stated.get((_REGISTERS, number), 0),
                stated.get((_STACK, number), 0),
                max(0, shared.size - reserved) if shared else 0,
                _threads(info, _THREADS),
                _threads(info, _MOST_THREADS),
            )
        )
    return found


def _threads(info: elf.Section | None, attribute: int) -> int:
    for name, value in elf.attributes(info.body) if info else ():
        if name == attribute and len(value) == 12:
            return prod(struct.unpack("<III", value))
    return 0


def _result(kernel: _Kernel, target: str, text: str, given: Given) -> Result:
    program = sass.read(text)
    if 16 * len(program.instructions) != len(kernel.body):
        return Result(
            Job(kernel.name, target),
            "not measured",
            f"nvdisasm shows {len(program.instructions)} instructions of "
            f"{len(kernel.body) // 16} of {kernel.name}",
        )
    code = Code(
        hash=identity.hash_of(target, [kernel.body]),
        program=program,
        registers=kernel.registers,
        stack_bytes=kernel.stack_bytes,
        spilled_bytes=sass.spilled_bytes(program),
        code_bytes=len(kernel.body),
        tensor_level=program.tensor_level,
        async_copy_level=async_copy_level(program),
        advisories=unwritten_registers.advisories(program),
    )
    shared, remarks = _shared(kernel, program, given)
    warps, said = _warps(kernel, given)
    occupied, unknown = _occupied(target, code, warps, shared)
    remarks += [*said, *unknown, *_calls(program)]
    multiplies = program.count()["tensor"] > 0
    values: dict[str, float | None] = {
        "spilled_bytes": code.spilled_bytes,
        "advisories": len(code.advisories),
        "tensor_core_level": code.tensor_level,
        "registers": code.registers,
        "code_bytes": code.code_bytes,
    }
    if shared is not None:
        values["shared_bytes"] = shared
    if occupied is not None:
        values["blocks_in_flight"] = occupied["blocks"]
    if multiplies:
        values["async_copy_level"] = code.async_copy_level
    launch = {
        "kernel": readable(kernel.name),
        "grid": None,
        "num_warps": warps,
        "constants": {},
        "shared_bytes": shared,
        "multiplies": multiplies,
        **code.evidence(),
        "occupancy": occupied,
        "bound": None,
    }
    evidence = {"launches": [launch], "remarks": remarks}
    listed = {code.hash: identity.listing(program)}
    return Result(Job(kernel.name, target), "ok", "", values, evidence, listed)


def _shared(kernel: _Kernel, program: Program, given: Given) -> tuple[int | None, list[str]]:
    """The shared memory of a block, and what is to be said of it."""
    if given.shared is not None:
        return kernel.static_bytes + given.shared, []
    uses = (one.kind == "shared" or one.opcode.startswith("UTMA") for one in program.instructions)
    if any(uses) and not kernel.static_bytes:
        return None, [
            "its shared memory is of a size that the launch gives: state it with --shared BYTES"
        ]
    return kernel.static_bytes, []


def _warps(kernel: _Kernel, given: Given) -> tuple[int | None, list[str]]:
    threads = kernel.exact_threads or given.threads or kernel.most_threads
    if not threads:
        return None, ["the file does not state the threads of a block: give them with --threads N"]
    if kernel.most_threads and threads > kernel.most_threads:
        return None, [
            f"it is compiled for blocks of at most {kernel.most_threads} threads, so --threads "
            f"{threads} cannot be launched"
        ]
    said = []
    if kernel.exact_threads and given.threads not in (None, threads):
        said.append(f"its blocks have {threads} threads, whatever --threads says")
    elif not kernel.exact_threads and not given.threads:
        said.append("of blocks the file states only the most threads, and those are counted")
    return -(-threads // _WARP), said


def _occupied(
    target: str, code: Code, warps: int | None, shared: int | None
) -> tuple[dict[str, Any] | None, list[str]]:
    """The blocks in flight, as evidence has them, and why they are not known."""
    known = {one.name: one.device for one in targets.KNOWN if one.backend == "cuda"}
    if target not in known:
        names = ", ".join(known)
        return None, [f"no datasheet of {target}, so no blocks in flight: there are {names}"]
    if warps is None or shared is None:
        return None, []
    device = devices.load(known[target])
    blocks, by, limits = occupancy.blocks_in_flight(device, warps, code.registers, shared)
    return {"blocks": blocks, "limited_by": by, "limits": limits}, []


def _calls(program: Program) -> list[str]:
    """Functions that are not part of the kernel's own code."""
    own = {label for one in program.instructions for label in one.labels}
    apart: Mapping[str, None] = {
        name: None
        for one in program.instructions
        if one.opcode.split(".")[0] == "CALL"
        for name in sass.called(one) or ["what a pointer names"]
        if name not in own
    }
    if not apart:
        return []
    return [f"it calls {', '.join(map(readable, apart))}, which is not counted with it"]
