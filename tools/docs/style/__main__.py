"""Check the style of the documents.

    python -m tools.docs.style [PAGE ...] [--quiet]

Without PAGE it checks every page. It prints a line of figures for each page, and each fault as
``file:line: fault``. It exits with 1 where there is one.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tools.docs.style import pages, prose, rules


def main(arguments: list[str] | None = None) -> int:
    """Check pages and print their figures and faults.

    Args:
        arguments: Of the command line; those of the process without.

    Returns:
        0 where every page keeps the rules, 1 where one does not, 2 where a page cannot be read.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tools.docs.style", description="Check the style of the documents."
    )
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE", help="default: every page")
    parser.add_argument("--quiet", action="store_true", help="print faults only")
    options = parser.parse_args(arguments)
    chosen = options.pages or pages.all_pages()
    absent = [str(page) for page in chosen if not page.is_file()]
    if absent:
        print(f"error: no such page: {', '.join(absent)}", file=sys.stderr)
        return 2
    broken = 0
    if not options.quiet:
        print("  words  over 40  sentences  faults  page")
    for path in chosen:
        page = prose.read(path)
        figures = rules.measure(page)
        found = rules.faults(page, history=pages.of_history(path))
        broken += len(found)
        if not options.quiet:
            print(
                f"{figures.mean_words:7.1f} {100 * figures.long_share:6.1f} % "
                f"{figures.sentences:10} {len(found):7}  {pages.name(path)}"
            )
        for fault in found:
            print(f"{pages.name(path)}:{fault.line}: {fault.what}")
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
