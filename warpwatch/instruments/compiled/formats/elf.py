"""What the ELF container of a cubin or hsaco says: the code, its size, NVIDIA's register count."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
MACHINE_CUDA = 190
_NONE, SYMBOLS, NAMES, NO_BITS = 0, 2, 3, 8  # kinds of sections
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


class Symbol(NamedTuple):
    """A row of the table of symbols."""

    name: str
    info: int
    other: int
    section: int
    value: int
    size: int

    @property
    def is_local(self) -> bool:
        return self.info >> 4 == 0


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
    if machine != MACHINE_CUDA:
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
            if size > len(body) - at:
                raise ValueError("a section of .nv.info ends within an attribute")
            yield name, body[at : at + size]
            at += size


def sections(binary: bytes) -> tuple[tuple[int, ...], list[Section]]:
    """The header's fields and every section, by its number; ``ValueError`` where it is no ELF, or
    where a field points outside it."""
    if binary[:4] != b"\x7fELF" or binary[4:6] != b"\x02\x01":
        raise ValueError("expected a little-endian 64-bit ELF object (a cubin or hsaco)")
    if len(binary) < _HEADER.size:
        raise ValueError("the ELF object ends within its header")
    header = _HEADER.unpack_from(binary)
    table, entry, count, names_at = header[6], header[11], header[12], header[13]
    if entry != _SECTION.size or table + count * entry > len(binary):
        raise ValueError("the ELF object's table of sections lies outside it")
    rows = [_SECTION.unpack_from(binary, table + i * entry) for i in range(count)]
    places = [(0, 0) if row[1] in (_NONE, NO_BITS) else (row[4], row[5]) for row in rows]
    # Nor do they overlap: small files would become large ones.
    outside = any(offset + size > len(binary) for offset, size in places)
    if outside or sum(size for _, size in places) > len(binary):
        raise ValueError("sections of the ELF object lie outside it")
    bodies = [binary[offset : offset + size] for offset, size in places]
    if names_at >= count:
        raise ValueError("the ELF object does not name its sections")
    return header, [
        Section(name_at(bodies[names_at], name), kind, flags, body, size, *rest)
        for body, (name, kind, flags, _, _, size, *rest) in zip(bodies, rows, strict=True)
    ]


def symbols(found: Sequence[Section]) -> list[Symbol]:
    """Every symbol of an object with these sections, by its number; ``ValueError`` where their
    table is broken."""
    symbols = []
    for table in (one for one in found if one.kind == SYMBOLS):  # one, or none
        if len(table.body) % SYMBOL.size or table.link >= len(found):
            raise ValueError("the ELF object's table of symbols is broken")
        names = found[table.link].body
        for name, *rest in SYMBOL.iter_unpack(table.body):
            symbols.append(Symbol(name_at(names, name), *rest))
    return symbols


def name_at(names: bytes, place: int) -> str:
    """The name that begins at ``place``; ``ValueError`` where none does."""
    end = names.find(b"\0", place)
    if end < 0:
        raise ValueError("a name of the ELF object has no end")
    return names[place:end].decode("utf-8", "backslashreplace")


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
