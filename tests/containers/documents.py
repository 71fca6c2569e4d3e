"""How a documentation page is run: its files are written, its `bash` blocks executed, in order."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# file: (\S+)\n")


@dataclass(frozen=True)
class Block:
    """One fenced block; ``file`` is named in its first line."""

    language: str
    text: str
    file: str = ""


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found = []
    for language, text in _BLOCK.findall(page.read_text()):
        match = _FILE.match(text)
        found.append(Block(language, text, match[1] if match else ""))
    return found


def make_targets(page: Path) -> set[str]:
    """Every make target that the page names anywhere."""
    pattern = r"(?:`|^|\$ )make (?:--file docker/targets\.mk )?([a-z][a-z0-9-]*)"
    return set(re.findall(pattern, page.read_text(), re.MULTILINE))


def carry_out(
    page: Path, folder: Path, environment: Mapping[str, str], leave: tuple[str, ...] = ()
) -> list[str]:
    """Write the page's files and run its commands in ``folder``; what each command printed.

    Blocks that begin with a text of ``leave`` are another test's.
    """
    printed = []
    for block in blocks(page):
        if leave and block.text.startswith(leave):
            continue
        if block.file:
            target = folder / block.file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text)
        elif block.language == "bash":
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block.text],
                cwd=folder,
                env=dict(environment),
                capture_output=True,
                text=True,
                timeout=900,
            )
            output = done.stdout + done.stderr
            assert done.returncode == 0, f"{block.text}\n{output}"
            printed.append(output)
    return printed
