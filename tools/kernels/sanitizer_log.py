"""What compute-sanitizer's log says of a run, and which of racecheck's hazards are Triton's own.

A warp-specialised kernel starts the warps of its partitions as Triton writes it: the first warps
store a byte a waiting warp that names its partition, and what the partition takes over, and all
warps pass barrier 1; the waiting ones load both and pass barrier 1 again before any line of ours
runs. At the end the first warps store that all may leave, between the barriers 1 that follow the
partitions' last line. racecheck reports these pairs as races, though barrier 1 lies between.

A hazard is taken for this *hand-over* only if the machine code says so of both its instructions:

- the nearest barrier before the load and behind it, and behind the store, is barrier 1 for all
  warps: lines of ours synchronise with other barriers, and begin behind that;
- both are plain ``LDS`` and ``STS`` with a constant place in shared memory, and what they touch
  overlaps: the bytes of at most 16 warps, or those handed over.

Every other hazard in a kernel that Triton loaded is ours, and so is one whose code is not at hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from warpwatch.instruments.compiled.formats.code import Instruction, Program

Owner = Literal["ours", "hand-over", "library"]

_ACCESS = re.compile(
    r"(?P<kind>\w+) access at (?P<kernel>.+?)\+0x(?P<pc>[0-9a-f]+)"
    r"(?: in (?P<place>\S+?))?(?: \[(?P<count>\d+) hazards?\])?\s*$"
)
_SUMMARY = re.compile(r"(?:RACECHECK|ERROR) SUMMARY: (?P<count>\d+) ")
_PLACE = re.compile(r"\[[^\]]*\+(?P<offset>0x[0-9a-f]+)\]")
_BYTES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}
_WARPS = 16  # a block has at most
_INSTRUCTION = 16  # bytes


@dataclass(frozen=True)
class Access:
    """``kind`` is Read or Write, ``pc`` the instruction's bytes from the kernel's first one,
    ``place`` its file and line where the code has them."""

    kind: str
    kernel: str
    pc: int
    place: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.kernel}+{self.pc:#x}" + (f" {self.place}" if self.place else "")


@dataclass(frozen=True)
class Hazard:
    """Two accesses that racecheck saw without a barrier between, ``count`` times."""

    first: Access
    second: Access
    count: int = 1

    def told(self, exactly: bool) -> str:
        """With each instruction, or by lines alone: a kernel has many versions."""
        if exactly:
            return f"{self.first} and {self.second}"
        pair = " and ".join(f"{one.kind} {one.place}" for one in (self.first, self.second))
        return f"{self.first.kernel}: {pair}"


@dataclass(frozen=True)
class Log:
    """``summary`` is the count of the last line, None where the run was cut off; ``broken`` that
    the tool failed; ``errors`` what memcheck found, each by its first line."""

    hazards: tuple[Hazard, ...]
    errors: tuple[str, ...]
    broken: bool
    summary: int | None


def read(text: str) -> Log:
    hazards: list[Hazard] = []
    errors: list[str] = []
    first: Access | None = None
    summary = None
    for line in text.splitlines():
        line = line.removeprefix("=========")
        if found := _SUMMARY.search(line):
            summary = int(found["count"])
        elif found := _ACCESS.search(line):
            access = Access(
                found["kind"], found["kernel"], int(found["pc"], 16), found["place"] or ""
            )
            if "reported between" in line:
                first = access
            elif first is not None:
                hazards.append(Hazard(first, access, int(found["count"] or 1)))
        elif line.startswith((" Invalid ", " Program hit ", " Misaligned ")):
            errors.append(line.strip())
    broken = "Internal Sanitizer Error" in text or "No attachable process" in text
    return Log(tuple(hazards), tuple(errors), broken, summary)


def owner(hazard: Hazard, programs: Callable[[str], Sequence[Program]]) -> Owner:
    """``programs`` gives what Triton loaded by a kernel's name, in each of its versions; nothing
    for a kernel of a library, whose names Triton did not load."""
    known = [programs(access.kernel) for access in (hazard.first, hazard.second)]
    if not any(known):
        return "library"
    if hazard.first.kernel != hazard.second.kernel:
        return "ours"
    return "hand-over" if any(handed_over(one, hazard) for one in known[0]) else "ours"


def handed_over(program: Program, hazard: Hazard) -> bool:
    pair = {access.kind: access.pc // _INSTRUCTION for access in (hazard.first, hazard.second)}
    if set(pair) != {"Read", "Write"} or max(pair.values()) >= len(program.instructions):
        return False
    load, store = pair["Read"], pair["Write"]
    found = [
        _touched(program.instructions[at], name) for at, name in ((load, "LDS"), (store, "STS"))
    ]
    if None in found:
        return False
    loaded, stored = found[0] or range(0), found[1] or range(0)
    meets = loaded.start < stored.stop and stored.start < loaded.stop
    switched = _next_is_switch(program, load, -1) and _next_is_switch(program, load, 1)
    return meets and switched and _next_is_switch(program, store, 1)


def hand_over(program: Program) -> list[Hazard]:
    """Every pair of instructions whose hazard would be taken for one of the hand-over."""
    reads, writes = (
        [
            Access(kind, "", at * _INSTRUCTION)
            for at, one in enumerate(program.instructions)
            if one.opcode.split(".")[0] == name
        ]
        for kind, name in (("Read", "LDS"), ("Write", "STS"))
    )
    pairs = (Hazard(load, store) for load in reads for store in writes)
    return [pair for pair in pairs if handed_over(program, pair)]


def _touched(instruction: Instruction, name: str) -> range | None:
    """Bytes of shared memory, counted from where a register says; None of another instruction."""
    base, *modifiers = instruction.opcode.split(".")
    place = _PLACE.search(instruction.operands)
    if base != name or place is None:
        return None
    start = int(place["offset"], 16)
    size = next((_BYTES[one] for one in modifiers if one in _BYTES), 4)
    # A byte is one's own among those of all warps.
    return range(start, start + (_WARPS if base == "LDS" and size == 1 else size))


def _next_is_switch(program: Program, at: int, step: int) -> bool:
    """Whether the nearest barrier of warps before (-1) or behind (1) is Triton's for all warps."""
    at += step
    while 0 <= at < len(program.instructions):
        one = program.instructions[at]
        if one.opcode.split(".")[0] == "BAR":
            return one.opcode.startswith("BAR.SYNC") and one.operands.strip() == "0x1"
        at += step
    return False
