"""What the assembler wrote into each NVIDIA instruction for the scheduler.

Since Volta an instruction has 128 bits, of which 21 tell the hardware what it does not find out
by itself: how many clocks the warp waits before its next instruction, which of six scoreboards an
instruction of unknown latency counts up until it has read its operands or written its results,
and which of them must have come to zero before it is issued. Source of the layout: Jia et al.,
*Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking* (2018), section 2.1. It is the
same for sm_80, sm_90 and sm_100.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from warpwatch.instruments.compiled.formats import elf

_BYTES = 16
_FIRST_BIT = 41  # of the upper 64
_NONE = 7


class Control(NamedTuple):
    """Of one instruction: ``stall`` clocks until the next of the same warp; the scoreboards that
    it releases when results are ``written`` and when operands are ``read`` (``None`` for none);
    those it ``waits`` for."""

    stall: int
    written: int | None
    read: int | None
    waits: tuple[int, ...]


def of_cubin(cubin: bytes) -> list[Control]:
    """The controls of every instruction, in the order in which they are disassembled.

    Args:
        cubin: An ELF object for sm_70 or later.

    Returns:
        One control for each 16 bytes of code.

    Raises:
        ValueError: It is no ELF object.
    """
    return [one for _, body in elf.read(cubin).sections for one in _of_code(body)]


def _of_code(code: bytes) -> Sequence[Control]:
    found = []
    for (upper,) in struct.iter_unpack("<8xQ", code[: len(code) // _BYTES * _BYTES]):
        bits = upper >> _FIRST_BIT
        written, read, waits = bits >> 5 & 7, bits >> 8 & 7, bits >> 11 & 63
        found.append(
            Control(
                bits & 15,
                None if written == _NONE else written,
                None if read == _NONE else read,
                tuple(one for one in range(6) if waits >> one & 1),
            )
        )
    return found
