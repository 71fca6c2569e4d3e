"""Write the figures of the documents from committed results.

    python -m tools.docs.results [--check] [--list] [PAGE ...]

A page marks a block with ``<!-- generated: NAME -->`` and ``<!-- end -->``. The command fills the
blocks of every page, or of PAGE only. ``--check`` writes nothing, names each stale page, and exits
with 1 where there is one. ``--list`` prints every NAME with its figure of today.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tools.docs.figures import blocks
from tools.docs.figures.registry import FIGURES
from tools.docs.style import pages


def stale(chosen: list[Path]) -> dict[Path, str]:
    """Find pages whose blocks differ from today's figures.

    Args:
        chosen: The pages.

    Returns:
        For each stale page, its text with today's figures.

    Raises:
        ValueError: A block of a page names no figure, or its marks do not pair.
    """
    found = {}
    for path in chosen:
        text = path.read_text(encoding="utf-8")
        try:
            today = blocks.fill(text, FIGURES)
        except ValueError as error:
            raise ValueError(f"{pages.name(path)}: {error}") from error
        if today != text:
            found[path] = today
    return found


def main(arguments: list[str] | None = None) -> int:
    """Fill the blocks of pages, or check them.

    Args:
        arguments: Of the command line; those of the process without.

    Returns:
        0; 1 where ``--check`` finds a stale page; 2 where a block is wrong.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tools.docs.results",
        description="Write the figures of the documents from committed results.",
    )
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE", help="default: all")
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if stale")
    parser.add_argument("--list", action="store_true", help="print every figure")
    options = parser.parse_args(arguments)
    if options.list:
        for name, figure in FIGURES.items():
            print(f"<!-- generated: {name} -->\n{figure()}\n<!-- end -->\n")
        return 0
    try:
        found = stale(options.pages or pages.all_pages())
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for path, today in found.items():
        if not options.check:
            path.write_text(today, encoding="utf-8")
        print(f"{pages.name(path)}: {'stale' if options.check else 'written'}")
    return 1 if options.check and found else 0


if __name__ == "__main__":
    raise SystemExit(main())
