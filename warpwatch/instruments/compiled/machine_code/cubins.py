"""Several cubins as one, for a disassembler that takes longer to start than to read any of them.

What it looks at is kept: code, what is relocated in it, the tables of each function, symbols. What
is said of a file as a whole (its call graph, debug information) is left out. Functions of one name
get a suffix each, which no text shows.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from warpwatch.instruments.compiled.formats import elf

_ADDED, _RELOCATED = 4, 9  # kinds of sections
_INFO_IS_A_SECTION = 0x40
# What a section of code is about, below its count of registers.
_SYMBOL_OF_CODE = 0xFFFFFF
_OF_THE_FILE = re.compile(r"\.nv\.(info|callgraph|rel\.action|prototype)$|(\.rela?)?\.debug")
# Of a function that jumps by a table: where to.
_TARGETS_OF_A_JUMP = 0x34
_BEGINS = re.compile(r"^//-+ (?P<name>\S+) +-+$", re.MULTILINE)


@dataclass(frozen=True)
class _File:
    """A cubin's sections and symbols that are kept, by the numbers they have in it."""

    header: tuple[int, ...]
    sections: Mapping[int, elf.Section]
    symbols: Mapping[int, elf.Symbol]

    @property
    def code(self) -> set[str]:
        return {one.name for one in self.sections.values() if one.name.startswith(".text")}

    def named_apart(self, suffix: str) -> _File:
        """The same, its functions' names followed by ``suffix`` wherever they stand."""
        functions = sorted((one.removeprefix(".text.") for one in self.code), key=len, reverse=True)
        name = re.compile("|".join(map(re.escape, functions)))

        def apart(found: str) -> str:
            return name.sub(lambda match: match[0] + suffix, found)

        return _File(
            self.header,
            {at: replace(one, name=apart(one.name)) for at, one in self.sections.items()},
            {at: one._replace(name=apart(one.name)) for at, one in self.symbols.items()},
        )


def jumps_by_a_table(cubin: bytes) -> bool:
    """Whether any function does."""
    return _jumps_by_a_table(_read(cubin))


def _jumps_by_a_table(file: _File) -> bool:
    return any(
        name == _TARGETS_OF_A_JUMP
        for one in file.sections.values()
        if one.name.startswith(".nv.info.")
        for name, _ in elf.attributes(one.body)
    )


def groups(cubins: Sequence[bytes]) -> list[list[int]]:
    """Which of ``cubins`` can be one: those for one architecture, read in one way."""
    found: dict[tuple[object, ...], list[int]] = {}
    for place, file in enumerate(map(_read, cubins)):
        # Those that jump by a table are read in another way.
        kind = (_jumps_by_a_table(file), *file.header[:4], file.header[7])
        found.setdefault(kind, []).append(place)
    return list(found.values())


def merged(cubins: Sequence[bytes]) -> bytes:
    """One cubin with the functions of all."""
    files = [_read(cubin).named_apart(_suffix(of)) for of, cubin in enumerate(cubins)]
    kept = [(of, number) for of, file in enumerate(files) for number in file.sections]
    # Behind no section, two of names and one of symbols.
    sections = {place: number for number, place in enumerate(kept, 4)}
    # Those that only their file sees come before all others.
    order = sorted(
        ((of, number) for of, file in enumerate(files) for number in file.symbols),
        key=lambda place: not files[place[0]].symbols[place[1]].is_local,
    )
    names, table, local = bytearray(1), bytearray(elf.SYMBOL.size), 1
    for of, number in order:
        one = files[of].symbols[number]
        local += one.is_local
        place = sections.get((of, one.section), one.section)
        table += elf.SYMBOL.pack(len(names), one.info, one.other, place, one.value, one.size)
        names += one.name.encode() + b"\0"
    numbered: list[dict[int, int]] = [{} for _ in files]
    for at, (of, number) in enumerate(order, 1):
        numbered[of][number] = at
    made = [
        elf.Section(".strtab", elf.NAMES, 0, bytes(names), len(names)),
        elf.Section(
            ".symtab", elf.SYMBOLS, 0, bytes(table), len(table), 2, local, 8, elf.SYMBOL.size
        ),
    ]
    for of, number in kept:
        section, mine = files[of].sections[number], numbered[of]
        info = section.info
        if section.name.startswith(".text"):
            info = info & ~_SYMBOL_OF_CODE | mine.get(info & _SYMBOL_OF_CODE, 0)
        elif section.flags & _INFO_IS_A_SECTION:
            info = sections.get((of, info), 0)
        body, link = _relocated(section, mine), 3 if section.link else 0
        made.append(replace(section, body=body, link=link, info=info))
    return elf.written(files[0].header, made)


def split(text: str, cubins: Sequence[bytes]) -> list[str] | None:
    """What a disassembler wrote of :func:`merged`, one text a cubin; none where one lacks code."""
    found = parts(text)
    texts = []
    for of, cubin in enumerate(cubins):
        wanted = _read(cubin).named_apart(_suffix(of)).code
        if not wanted <= found.keys():
            return None
        mine = "".join(part for name, part in found.items() if name in wanted)
        texts.append(mine.replace(_suffix(of), ""))
    return texts


def parts(text: str) -> dict[str, str]:
    """What a disassembler wrote, by the name of each section of code."""
    begins = [*_BEGINS.finditer(text)]
    ends = [*(one.start() for one in begins[1:]), len(text)]
    return {one["name"]: text[one.start() : end] for one, end in zip(begins, ends, strict=True)}


def _suffix(of: int) -> str:
    return f"__of_cubin_{of}__"


def _read(cubin: bytes) -> _File:
    header, sections = elf.sections(cubin)
    kept = {
        number: one
        for number, one in enumerate(sections)
        if number and one.kind not in (elf.SYMBOLS, elf.NAMES) and not _OF_THE_FILE.match(one.name)
    }
    symbols = {
        number: one
        for number, one in enumerate(elf.symbols(sections))
        # None at all, or one of what is left out.
        if number and (one.section in kept or not 0 < one.section < len(sections))
    }
    return _File(header, kept, symbols)


def _relocated(section: elf.Section, symbols: Mapping[int, int]) -> bytes:
    """The body of a section, its symbols by their new numbers."""
    form = {_ADDED: struct.Struct("<QIIq"), _RELOCATED: struct.Struct("<QII")}.get(section.kind)
    if form is None:
        return section.body
    rows = (
        form.pack(at, kind, symbols.get(symbol, 0), *added)
        for at, kind, symbol, *added in form.iter_unpack(section.body)
    )
    return b"".join(rows)
