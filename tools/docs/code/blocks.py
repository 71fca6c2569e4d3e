"""Code blocks of a page: which are run, which are files, and why the others are neither.

- A ``bash`` block is run, in the order of the page and in one folder.
- A block whose first line is ``# file: NAME`` is written to that file.
- A ``text`` block is output or a sketch.
- Any other block needs a comment before it: ``<!-- not run: REASON -->``. Under a heading it holds
  for that section; before the first heading of level two it holds for the page.
- ``<!-- run after: PAGE -->`` begins where another page of the same kind ended.
- ``<!-- run by: TEST -->`` says that a test of its own runs the page.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

_PARSER = MarkdownIt("commonmark")
_FILE = re.compile(r"# file: (\S+)\n")
_NOTE = re.compile(r"<!-- (not run|run after|run by): (.+?) -->", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    line: int  # of its fence, from 1
    language: str
    text: str
    file: str = ""  # the file that it is
    reason: str = ""  # why it is not run

    @property
    def runs(self) -> bool:
        """Whether it is a command to run."""
        return self.language == "bash" and not self.file and not self.reason


@dataclass(frozen=True)
class Steps:
    """What a page's blocks do."""

    blocks: tuple[Block, ...]
    after: Path | None = None
    by: str = ""

    @property
    def unexplained(self) -> tuple[Block, ...]:
        """Blocks that are not run and do not say why."""
        return tuple(
            one
            for one in self.blocks
            if not (one.runs or one.file or one.reason or one.language == "text")
        )


def read(page: Path) -> Steps:
    """Read the code blocks of a page.

    Args:
        page: The page's file.

    Returns:
        Its blocks in order.
    """
    found: list[Block] = []
    after, by = None, ""
    of_page = of_section = ""
    in_section = False
    heading = ""
    for token in _PARSER.parse(page.read_text(encoding="utf-8")):
        if token.type == "heading_open":
            heading, of_section = token.tag, ""
            in_section = in_section or heading != "h1"
        for kind, said in _NOTE.findall(token.content) if token.type == "html_block" else ():
            said = " ".join(said.split())
            if kind == "run after":
                after = (page.parent / said).resolve()
            elif kind == "run by":
                by = said
            elif in_section:
                of_section = said
            else:
                of_page = said
        if token.type == "fence" and token.map:
            language = token.info.split()[0] if token.info else ""
            match = _FILE.match(token.content)
            # A note of the section holds for commands, too; one of the page does not.
            reason = of_section or ("" if language == "bash" else of_page)
            file = match[1] if match else ""
            found.append(Block(token.map[0] + 1, language, token.content, file, reason))
    return Steps(tuple(found), after, by)
