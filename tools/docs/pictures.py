"""Takes pictures of a built report, so that a person can look at every kind of page in every look.

    python -m tools.docs.pictures SITE FOLDER [index] [finding] ... [--look light] [--look print]

SITE is what ``warpwatch report`` wrote. One PNG per kind of page and look goes into FOLDER. Words
that a page logs, and pages wider than the screen, are printed. Exit 1 where there are any.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.reports.chromium import Browser


@dataclass(frozen=True)
class Look:
    """How a page is shown: the width of the screen or of the paper, and its colours."""

    width: int = 1280
    dark: bool = False
    paper: bool = False


# Paper is A4 without its margins, at 96 dots an inch.
LOOKS = {
    "light": Look(),
    "dark": Look(dark=True),
    "narrow": Look(width=400),
    "print": Look(width=718, paper=True),
}
_OVERLAID = re.compile(r"overlay\.html#s=[^\"]+")
_OPTION = re.compile(r'<option value="([0-9a-f]{12})"')
_TALLEST = 12_000  # dots: what Chromium draws in one picture, and more than anyone looks at


def kinds(site: Path) -> dict[str, str]:
    """Choose one page of each kind.

    Args:
        site: The folder of the report.

    Returns:
        The address below ``site`` by the name of the kind.

    Example:
        >>> kinds(Path("reports/html"))["index"]
        'index.html'
    """
    findings = json.loads((site / "regressions.json").read_text(encoding="utf-8"))["findings"]
    findings.sort(key=lambda one: one["status"] != "open")
    pages = [one["page"] for one in findings if one.get("page")]
    found = {"index": "index.html", "findings": "findings.html"}
    if pages:
        found["finding"] = pages[0]
    for name, folder in (
        ("series", "s"),
        ("workload", "w"),
        ("machine", "m"),
        ("commit", "c"),
        ("roofline", "r"),
    ):
        # The largest page of a kind shows the most of what such a page can hold.
        every = sorted((site / folder).glob("*.html"), key=lambda page: page.stat().st_size)
        if every:
            found[name] = f"{folder}/{every[-1].name}"
            found[f"small-{name}"] = f"{folder}/{every[len(every) // 2].name}"
    # Scripts draw these two from what an address says: series, and the ends of the history.
    linked = (_OVERLAID.search(page.read_text("utf-8")) for page in sorted((site / "w").iterdir()))
    found["overlay"] = next((one[0] for one in linked if one), "overlay.html")
    commits = _OPTION.findall((site / "compare.html").read_text("utf-8"))
    found["compare"] = f"compare.html#{commits[-1]}..{commits[0]}" if commits else "compare.html"
    return found


def taken(browser: Browser, site: Path, page: str, look: Look, path: Path) -> list[str]:
    """Take one picture.

    Args:
        browser: A running browser.
        site: The folder of the report.
        page: The address below it.
        look: How it is shown.
        path: The picture to write.

    Returns:
        Complaints: words that were logged, and a width that the screen does not have.

    Example:
        >>> taken(browser, Path("reports/html"), "index.html", LOOKS["dark"], Path("index.png"))
        []
    """
    browser.view(width=look.width, height=900, dark=look.dark)
    if look.paper:
        browser.call("Emulation.setEmulatedMedia", media="print")
    name, _, fragment = page.partition("#")
    browser.open("about:blank")
    seen = browser.open((site / name).as_uri() + (f"#{fragment}" if fragment else ""))
    browser.settle(0.5)
    wide, tall = browser.run(
        "[document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
    )
    browser.view(width=look.width, height=min(tall, _TALLEST), dark=look.dark)
    if look.paper:
        browser.call("Emulation.setEmulatedMedia", media="print")
    browser.settle(0.2)
    browser.screenshot(path)
    complaints = [f"logged: {line}" for line in seen.console]
    if wide > look.width:
        complaints.append(f"{wide} dots wide where the screen has {look.width}")
    return complaints


def main(given: Sequence[str] | None = None) -> int:
    """Take every picture that was requested.

    Args:
        given: Arguments, those of the process by default.

    Returns:
        The exit code.

    Example:
        >>> main(["reports/html", "pictures", "index", "--look", "dark"])
        0
    """
    parser = argparse.ArgumentParser(
        prog="python -m tools.docs.pictures",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("site", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="kinds of pages (default: all)")
    parser.add_argument("--look", action="append", choices=LOOKS, help="repeatable (default: all)")
    args = parser.parse_args(given)
    every = kinds(args.site)
    unknown = sorted(set(args.names) - set(every))
    if unknown:
        parser.error(f"unknown kind {unknown[0]}: expected one of {', '.join(every)}")
    args.folder.mkdir(parents=True, exist_ok=True)
    complained = False
    with Browser() as browser:
        for name in args.names or every:
            for look in args.look or LOOKS:
                path = args.folder / f"{name}-{look}.png"
                for line in taken(browser, args.site.resolve(), every[name], LOOKS[look], path):
                    complained = True
                    print(f"{path.name}: {line}")
    return int(complained)


if __name__ == "__main__":
    sys.exit(main())
