"""Uniform registers of NVIDIA machine code that are read before anything has written them.

The compiler's mistake, never the program's: PTX has no such read where Triton made it. ptxas 12.8
does it to the wgmma descriptors of two operands that share their address and differ in their
swizzle: the later steps of the second product then read whatever lies anywhere in shared memory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from warpwatch.instruments.compiled.formats.code import Instruction, Program, blocks

_REGISTER = re.compile(r"(?P<open>\w*\[)?(?P<sign>[-!~|]*)UR(?P<number>\d+)(?P<wide>\.64)?")
_NOT_FIRST = re.compile(r"!?U?P(?:T|\d+)$")
_WIDTH = {"64": 2, "WIDE": 2, "128": 4, "256": 8}
# A bare register comes first and is read: all others write what comes first.
_READS_FIRST = frozenset(["BAR", "BRXU", "JMXU", "SETCTAID", "UR2UP", "USETMAXREG", "WARPSYNC"])
# What is called writes what it likes.
_ALL = (1 << 256) - 1


def uniform_registers(program: Program) -> tuple[str, ...]:
    """Each such read, as ``UR42 in "UIADD3 UR42, UP0, UR42, 0x40, URZ"``, in layout order.

    Only what is read unwritten whichever way led there: on no way from the entry to its first read
    is there a write, be it under a condition. A register whose only write is behind its read, in a
    loop, is one.
    """
    code = program.instructions
    reads, writes = zip(*(_touched(one) for one in code), strict=True) if code else ((), ())
    starts, edges = blocks(code)
    found = []
    for at, register in _suspects(reads, writes, starts, edges):
        if not _written_before(at, 1 << register, writes, starts, edges):
            found.append(f'UR{register} in "{code[at].opcode} {code[at].operands}"')
    return tuple(found)


def advisories(program: Program) -> tuple[str, ...]:
    """One sentence where there is such a read, with the first of them."""
    found = uniform_registers(program)
    if not found:
        return ()
    return (
        f"reads {found[0]}, which nothing wrote ({len(found)} such reads): the compiler's mistake; "
        "results are wrong",
    )


def _suspects(
    reads: Sequence[int],
    writes: Sequence[int],
    starts: Sequence[int],
    edges: dict[int, list[int]],
) -> list[tuple[int, int]]:
    """Instruction and register of each read that some way leads to without a write."""
    ends = [*starts[1:], len(reads)]
    unwritten = dict.fromkeys(edges, 0)
    waiting = [0] if edges else []
    seen: set[int] = set()
    found: dict[tuple[int, int], None] = {}
    if edges:
        unwritten[0] = _ALL
    while waiting:
        block = waiting.pop()
        seen.add(block)
        live = unwritten[block]
        for at in range(starts[block], ends[block]):
            if missing := reads[at] & live:
                for register in range(missing.bit_length()):
                    if missing >> register & 1:
                        found[at, register] = None
            live &= ~writes[at]
        for other in edges[block]:
            if other not in seen or live & ~unwritten[other]:
                unwritten[other] |= live
                waiting.append(other)
    return sorted(found)


def _written_before(
    at: int,
    bit: int,
    writes: Sequence[int],
    starts: Sequence[int],
    edges: dict[int, list[int]],
) -> bool:
    """Whether on some way from the entry that has not met instruction ``at`` yet there is a write,
    behind which it is met."""
    ends = [*starts[1:], len(writes)]
    # (block, written so far)
    waiting = [(0, False)]
    seen = set(waiting)
    while waiting:
        block, written = waiting.pop()
        met = False
        for i in range(starts[block], ends[block]):
            if i == at:
                if written:
                    return True
                met = True
                break
            written = written or bool(writes[i] & bit)
        if met:
            continue
        for other in edges[block]:
            if (other, written) not in seen:
                seen.add((other, written))
                waiting.append((other, written))
    return False


def _touched(one: Instruction) -> tuple[int, int]:
    """Masks of the uniform registers it reads and writes. In doubt fewer are read, more written."""
    base, *modifiers = one.opcode.split(".")
    if base == "CALL":
        return 0, _ALL
    # To put a register aside is no use of it: only some of those that are put aside were written.
    if "UR" not in one.operands or "SPILL" in modifiers:
        return 0, 0
    reads = writes = 0
    first = base not in _READS_FIRST
    for place, operand in enumerate(one.operands.split(",")):
        operand = operand.strip()
        if _NOT_FIRST.match(operand):
            continue
        for match in _REGISTER.finditer(operand):
            number = int(match["number"])
            if first and not match["open"] and not match["sign"] and match.start() == 0:
                width = max([_WIDTH[part] for part in modifiers if part in _WIDTH], default=1)
                writes |= (1 << width) - 1 << number
                continue
            mask = 3 if match["wide"] or match["open"] in ("desc[", "gdesc[") else 1
            if match["open"] == "gdesc[" and base.endswith("GMMA") and not base.startswith("UTC"):
                # The descriptors of A and of B, or where A lies in registers a gap and that of B.
                mask = 0b1111 if place == 1 else 0b1100
            reads |= mask << number
        first = False
    return reads, writes
