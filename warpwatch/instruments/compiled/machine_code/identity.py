"""What a kernel is, whatever it is called: a hash of its machine code, and a listing to compare.

Neither holds symbol names, line numbers, addresses or label names, so that a comment, a rename or a
moved file changes nothing, and an equal hash proves that a kernel did not change.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterable

from warpwatch.instruments.compiled.formats import elf
from warpwatch.instruments.compiled.formats.code import Program
from warpwatch.instruments.compiled.formats.recording import Kernel

_TABLE = '(*"BRANCH_TARGETS '
_LABEL = re.compile(r"\.L_x_\d+")
_NAMED = re.compile(r"`\([^)]*\)|@\w+(?:\.\w+)*|\b[A-Za-z_]\w*@(?:rel|abs|got)\w*")


def code_hash(kernel: Kernel) -> str:
    """Of the instructions alone, for one architecture."""
    return hash_of(kernel.target.name, [body for _, body in elf.read(kernel.binary).sections])


def hash_of(target: str, bodies: Iterable[bytes]) -> str:
    """The same of the sections that hold a kernel's code."""
    digest = hashlib.sha256(target.encode())
    for body in bodies:
        digest.update(len(body).to_bytes(8, "little"))
        digest.update(body)
    return digest.hexdigest()


def listing(program: Program) -> str:
    """The instructions as text, labels numbered in the order they are met."""
    numbers: dict[str, int] = {}
    aimed = {target for one in program.instructions for target in one.targets}
    for one in program.instructions:
        for label in one.labels:
            if label in aimed:
                numbers.setdefault(label, len(numbers))
    lines: list[str] = []
    for one in program.instructions:
        lines += [f"L{numbers[label]}:" for label in one.labels if label in aimed]
        operands = one.operands
        for target in one.targets:
            operands = operands.replace(f"`({target})", f"L{numbers.get(target, '?')}")
            if operands == target:
                operands = f"L{numbers.get(target, '?')}"
        if _TABLE in operands:  # which spells its labels, aligned by their length
            named = _LABEL.sub(lambda label: f"L{numbers.get(label[0], '?')}", operands)
            operands = " ".join(named.split())
        operands = _NAMED.sub("SYMBOL", operands)
        guard = f"{one.guard} " if one.guard else ""
        lines.append(f"    {guard}{one.opcode} {operands}".rstrip())
    return "\n".join(lines) + "\n"


def differences(old: str, new: str, *, names: tuple[str, str] = ("old", "new")) -> str:
    """A unified diff of two listings; empty where they agree."""
    return "".join(
        difflib.unified_diff(
            old.splitlines(keepends=True), new.splitlines(keepends=True), *names, n=2
        )
    )
