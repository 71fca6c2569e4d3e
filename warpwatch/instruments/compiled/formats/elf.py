"""What the ELF container of a cubin or hsaco says: the code, its size, NVIDIA's register count."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_MACHINE_CUDA = 190
NAMES, _NO_BITS = 3, 8  # kinds of sections
_SIZED, _FRAME_SIZE, _REGISTER_COUNT = 0x04, 0x11, 0x2F  # of .nv.info


@dataclass(frozen=True)
class Section:
    """The fields of a section's header, but for where it lies, and what lies there."""

    name: str
    kind: int
    flags: int
    body: bytes
    size: int
    link: int = 0
    info: int = 0
    alignment: int = 1
    entry: int = 0


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
    header, found = sections(binary)
    machine = header[2]
    text = tuple((one.name, one.body) for one in found if one.name.startswith(".text"))
    if machine != _MACHINE_CUDA:
        return Code(machine, text, None, None)
    stated = [
        (name, struct.unpack("<II", value)[1])
        for one in found
        if one.name == ".nv.info"
        for name, value in attributes(one.body)
        if len(value) == 8
    ]
    registers = [value for name, value in stated if name == _REGISTER_COUNT]
    stack = [value for name, value in stated if name == _FRAME_SIZE]
    return Code(machine, text, max(registers, default=0), max(stack, default=0))


def attributes(body: bytes) -> Iterator[tuple[int, bytes]]:
    """(attribute, value) of NVIDIA's info sections, of the attributes that say their size."""
    at = 0
    while at + 4 <= len(body):
        form, name, size = struct.unpack_from("<BBH", body, at)
        at += 4
        if form == _SIZED:
            yield name, body[at : at + size]
            at += size


def sections(binary: bytes) -> tuple[tuple[int, ...], list[Section]]:
    """The header's fields and every section, by its number; ``ValueError`` where it is no ELF."""
    if binary[:4] != b"\x7fELF" or binary[4] != 2 or binary[5] != 1:
        raise ValueError("expected a little-endian 64-bit ELF object (a cubin or hsaco)")
    header = _HEADER.unpack_from(binary)
    table, entry, count, names_at = header[6], header[11], header[12], header[13]
    rows = [_SECTION.unpack_from(binary, table + i * entry) for i in range(count)]
    names = binary[rows[names_at][4] : rows[names_at][4] + rows[names_at][5]]
    return header, [
        Section(
            name_at(names, name),
            kind,
            flags,
            b"" if kind == _NO_BITS else binary[offset : offset + size],
            size,
            *rest,
        )
        for name, kind, flags, _, offset, size, *rest in rows
    ]


def name_at(names: bytes, place: int) -> str:
    return names[place : names.index(b"\0", place)].decode()


def written(header: tuple[int, ...], kept: Sequence[Section]) -> bytes:
    """An object of ``kept``, behind an empty section and one of their names."""
    names, places = bytearray(1), [0]
    for name in (".shstrtab", *(one.name for one in kept)):
        places.append(len(names))
        names += name.encode() + b"\0"
    named = Section(".shstrtab", NAMES, 0, bytes(names), len(names))
    every = [Section("", 0, 0, b"", 0), named, *kept]
    body, table = bytearray(_HEADER.size), bytearray()
    for place, one in zip(places, every, strict=True):
        body += bytes(-len(body) % max(1, one.alignment))
        table += _SECTION.pack(
            place,
            one.kind,
            one.flags,
            0,
            len(body),
            one.size,
            one.link,
            one.info,
            one.alignment,
            one.entry,
        )
        body += one.body
    fields = list(header)
    fields[5], fields[6] = 0, len(body)  # no program headers
    fields[10], fields[12], fields[13] = 0, len(every), 1
    body[: _HEADER.size] = _HEADER.pack(*fields)
    return bytes(body + table)
