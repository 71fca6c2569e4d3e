"""Runs the Python blocks of pages, those of a page in one namespace and in their order.

Triton reads TRITON_INTERPRET when it is imported, so tests call this in the interpreter's process.
"""

from __future__ import annotations

import re
from pathlib import Path

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, int, str, str]]:
    """Language, first line, code, and the last line before, of each fenced block of a page."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in BLOCK.finditer(text):
        before = text[: match.start()].rstrip().rpartition("\n")[2]
        found.append((match[1], text.count("\n", 0, match.start()) + 2, match[2], before))
    return found


def run(page: Path) -> int:
    names: dict[str, object] = {}
    ran = 0
    for language, line, code, _ in blocks(page):
        if language == "python":
            exec(compile("\n" * (line - 1) + code, str(page), "exec"), names)
            ran += 1
    return ran
