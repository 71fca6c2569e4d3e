"""Marked blocks of a page, which a command fills.

A block on lines of its own holds a table or a paragraph:

    <!-- generated: standing -->
    ...
    <!-- end -->

Within a line it holds words:

    It finds <!-- generated: planted-found -->16 of 16<!-- end --> defects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from markdown_it import MarkdownIt

_BLOCK = re.compile(r"<!-- generated: ([\w-]+) -->(.*?)<!-- end -->", re.DOTALL)
_MARK = re.compile(r"<!-- (?:generated: [\w-]+|end) -->")
_PARSER = MarkdownIt("commonmark")


def fill(text: str, figures: Mapping[str, Callable[[], str]]) -> str:
    """Fill every marked block of a page; those that code blocks show as text stay.

    Args:
        text: The page.
        figures: What computes each figure, by the name that a block gives.

    Returns:
        The page with today's figures.

    Raises:
        ValueError: A block names no figure, or its marks do not pair.
    """
    code = _code_lines(text)

    def filled(found: re.Match[str]) -> str:
        line = text[: found.start()].count("\n")
        if line in code:
            return found[0]
        name, inside = found[1], found[2]
        if _MARK.search(inside):
            raise ValueError(f"line {line + 1}: block {name!r} has no <!-- end -->")
        if name not in figures:
            known = ", ".join(sorted(figures))
            raise ValueError(f"line {line + 1}: no figure is called {name!r}; there are {known}")
        figure = figures[name]().strip()
        if "\n" in inside:
            return f"<!-- generated: {name} -->\n\n{figure}\n\n<!-- end -->"
        if "\n" in figure:
            raise ValueError(
                f"line {line + 1}: figure {name!r} has several lines: put its marks on their own"
            )
        return f"<!-- generated: {name} -->{figure}<!-- end -->"

    whole = _BLOCK.sub(filled, text)
    unpaired = [mark for mark in _outside(whole) if _MARK.search(mark)]
    if unpaired:
        raise ValueError(f"a mark without its pair: {unpaired[0].strip()}")
    return whole


def _code_lines(text: str) -> frozenset[int]:
    """Lines of code blocks, from 0."""
    return frozenset(
        line
        for token in _PARSER.parse(text)
        if token.type in ("fence", "code_block") and token.map
        for line in range(*token.map)
    )


def _outside(text: str) -> Iterator[str]:
    """Lines that are neither within a block nor code."""
    code = _code_lines(text)
    blank = _BLOCK.sub(lambda found: "\n" * found[0].count("\n"), text)
    for at, line in enumerate(blank.split("\n")):
        if at not in code and "`<!--" not in line:
            yield line
