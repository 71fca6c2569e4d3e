"""What the ELF container of a cubin or hsaco says: the code, its size, NVIDIA's register count."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_MACHINE_CUDA = 190
_SIZED, _FRAME_SIZE, _REGISTER_COUNT = 0x04, 0x11, 0x2F  # of .nv.info


@dataclass(frozen=True)
class Code:
    """The executable part. ``sections`` are the text sections by name; ``registers`` and
    ``stack_bytes`` (a thread's) are what a cubin states, ``None`` for other machines."""

    machine: int
    sections: tuple[tuple[str, bytes], ...]
    registers: int | None
    stack_bytes: int | None

    @property
    def code_bytes(self) -> int:
        return sum(len(body) for _, body in self.sections)


def read(binary: bytes) -> Code:
    """Parse an ELF object; ``ValueError`` where it is none."""
    if binary[:4] != b"\x7fELF" or binary[4] != 2 or binary[5] != 1:
        raise ValueError("expected a little-endian 64-bit ELF object (a cubin or hsaco)")
    header = _HEADER.unpack_from(binary)
    machine = header[2]
    sections = tuple(_sections(binary, header))
    text = tuple((name, body) for name, body in sections if name.startswith(".text"))
    if machine != _MACHINE_CUDA:
        return Code(machine, text, None, None)
    attributes = list(_attributes(dict(sections).get(".nv.info", b"")))
    registers = [value for name, value in attributes if name == _REGISTER_COUNT]
    stack = [value for name, value in attributes if name == _FRAME_SIZE]
    return Code(machine, text, max(registers, default=0), max(stack, default=0))


def _attributes(body: bytes) -> Iterator[tuple[int, int]]:
    """(attribute, value) of NVIDIA's info section, of the attributes that name a function."""
    at = 0
    while at + 4 <= len(body):
        form, name, size = struct.unpack_from("<BBH", body, at)
        at += 4
        if form == _SIZED:
            if size == 8:
                yield name, struct.unpack_from("<II", body, at)[1]
            at += size


def _sections(binary: bytes, header: tuple[int, ...]) -> Iterator[tuple[str, bytes]]:
    table, entry, count, names_at = header[6], header[11], header[12], header[13]
    rows = [_SECTION.unpack_from(binary, table + i * entry) for i in range(count)]
    names = binary[rows[names_at][4] : rows[names_at][4] + rows[names_at][5]]
    no_bits = 8
    for name_at, kind, _, _, offset, size, _, _, _, _ in rows:
        name = names[name_at : names.index(b"\0", name_at)].decode()
        yield name, b"" if kind == no_bits else binary[offset : offset + size]
