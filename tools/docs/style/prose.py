"""Sentences of a Markdown page with their lines: no code, no table, no comment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

_PARSER = MarkdownIt("commonmark").enable("table")
# A sentence ends where the next one begins: "3.7.1" and "e.g. this" end none.
_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]*[A-Z0-9`])")
_NO_END = re.compile(r"\b(?:e\.g|i\.e|vs|cf|etc|approx|No|Fig)\.$")
_WORD = re.compile(r"[\w`%]")
_LONGEST_LABEL = 8  # words of an entry of a list that is no sentence: it ends without a full stop


@dataclass(frozen=True)
class Sentence:
    """One sentence of prose."""

    line: int  # of the page, from 1
    text: str  # code stands as a single pair of backticks

    @property
    def words(self) -> int:
        """How many words it has; a piece of code is one."""
        return sum(1 for word in self.text.split() if _WORD.search(word))


@dataclass(frozen=True)
class Page:
    """A page as the style check sees it."""

    path: Path
    lines: tuple[str, ...]
    sentences: tuple[Sentence, ...]  # of paragraphs and lists
    headings: tuple[Sentence, ...]
    code: frozenset[int]  # lines of code blocks, from 1
    tables: frozenset[int]  # lines of tables, from 1


def read(path: Path) -> Page:
    """Read a Markdown page.

    Args:
        path: The page's file.

    Returns:
        Its lines and sentences.
    """
    text = path.read_text(encoding="utf-8")
    sentences: list[Sentence] = []
    headings: list[Sentence] = []
    spans: dict[str, set[int]] = {"code": set(), "table": set()}
    before = ""
    for token in _PARSER.parse(text):
        if token.map is None:
            continue
        lines = range(token.map[0] + 1, token.map[1] + 1)
        if token.type in ("fence", "code_block"):
            spans["code"].update(lines)
        elif token.type == "table_open":
            spans["table"].update(lines)
        elif token.type == "inline" and lines[0] not in spans["table"]:
            if before == "heading_open":
                headings.append(Sentence(lines[0], _plain(token)))
            else:
                sentences += _sentences(_plain(token), lines[0])
        before = token.type
    return Page(
        path,
        tuple(text.splitlines()),
        tuple(sentences),
        tuple(headings),
        frozenset(spans["code"]),
        frozenset(spans["table"]),
    )


def _plain(inline: Token) -> str:
    """The text that a reader sees, with the page's line breaks."""
    parts = {"code_inline": "`code`", "softbreak": "\n", "hardbreak": "\n"}
    return "".join(
        one.content if one.type == "text" else parts.get(one.type, "")
        for one in inline.children or ()
    )


def _sentences(block: str, line: int) -> Iterator[Sentence]:
    begin = 0
    for end in [*_END.finditer(block), None]:
        until = end.start() if end else len(block)
        if end and _NO_END.search(block[begin:until]):
            continue
        piece = block[begin:until]
        at = line + block[:begin].count("\n")
        sentence = Sentence(at, " ".join(piece.split()))
        begin = end.end() if end else until
        finished = sentence.text.rstrip("\"')]*").endswith((".", "!", "?", ":", ";"))
        if finished or sentence.words > _LONGEST_LABEL:
            yield sentence
