"""Measures the histories of public Triton libraries, and holds the findings against labels.

    python -m tools.gallery FOLDER [NAME ...] [--measure] [--pages]

FOLDER holds a clone of each library, named OWNER+NAME. Where one is missing, the command that
brings it is printed. Results and report of a library lie in FOLDER/NAME. ``--measure`` runs the
library's own code on this machine. Exit 1 where a finding has no label, or a label no finding.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.gallery import measuring, pages
from tools.gallery.findings import astray, document, unlabelled
from tools.gallery.labels import labels
from tools.gallery.libraries import Library, libraries


def main(given: Sequence[str] | None = None) -> int:
    """Measure and compare.

    Args:
        given: Of the command line; those of the process without.

    Returns:
        0; 1 where labels and findings do not pair; 2 where a clone or a file is wrong.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tools.gallery",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--measure", action="store_true", help="measure commits without results")
    parser.add_argument("--pages", action="store_true", help="write the figures of the pages")
    args = parser.parse_args(given)
    try:
        every = libraries()
        unknown = sorted(set(args.names) - set(every))
        if unknown:
            raise ValueError(f"unknown library {unknown[0]}: expected one of {', '.join(every)}")
        chosen = [every[name] for name in args.names or every]
        absent = [line for one in chosen for line in measuring.missing(args.folder, one)]
        if absent:
            raise ValueError("\n".join(("run first, for what is missing:", *absent)))
        wrong = [_one(args.folder, one, args.measure, args.pages) for one in chosen]
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return int(any(wrong))


def _one(folder: Path, library: Library, measure: bool, publish: bool) -> bool:
    place = measuring.prepare(folder, library)
    if measure:
        measuring.measure(place, library)
    site = measuring.report(place, library)
    found = document(site, library, place / "source")
    rows = labels(library.folder / "checked.csv")
    without, strays = unlabelled(found, rows), astray(found, rows)
    print(f"{library.name}: {found['commits']} commits, {len(found['findings'])} findings, {site}")
    for line in (*(f"no label: {one}" for one in without), *strays):
        print(line)
    if publish:
        pages.write(library, found)
    return bool(without or strays)


if __name__ == "__main__":
    sys.exit(main())
