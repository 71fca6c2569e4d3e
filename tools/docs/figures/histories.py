"""Figures of the benchmark of judges, as ``python -m tools.histories --json`` measured them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from tools.docs.figures.markdown import table
from tools.histories.places import places
from tools.histories.tables import Known, confirmed, listed
from tools.root import ROOT

FILE = ROOT / "docs" / "results" / "data" / "histories.json"


@cache
def _measured() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return document


def named() -> str:
    """Say how many regressions each judge names with the right commit.

    Returns:
        A table with a row for each history.
    """
    rows = []
    for name, found in _measured().items():
        for kind, words in (("confirmed", "by maintainers"), ("listed", "that asv lists")):
            if kind in found:
                ours, asv = (found[kind].get(judge) for judge in ("ours", "asv"))
                count = str(ours["regressions"])
                rows.append((name, words, count, str(ours["named"]), str(asv["named"])))
    head = ("history", "regressions", "how many", "Warpwatch", "asv")
    return table(head, rows, right=(2, 3, 4))


def reports() -> str:
    """Say what a reader of each history's report meets.

    Returns:
        A table with a row for each history.
    """
    rows = []
    for name, found in _measured().items():
        one = found["counts"]
        ranges = f"{one['true_ranges']} of {one['ranges']}"
        judged = f"{one['judged']:,} of {one['series']:,}"
        counted = [str(one[key]) for key in ("open", "attention", "twice")]
        rows.append((name, f"{one['commits']:,}", judged, ranges, *counted))
    head = ("history", "commits", "series judged", "true ranges", "open", "attention", "twice")
    return table(head, rows, right=(1, 2, 3, 4, 5, 6))


def cost() -> str:
    """Say what a cold build of a report costs.

    Returns:
        A table with a row for each history that was built.
    """
    rows = [
        (name, *(f"{found['ours'][key]:,.0f}" for key in ("cpu_s", "peak_mb", "site_mb")))
        for name, found in _measured().items()
        if "ours" in found
    ]
    head = ("history", "processor s", "memory of the largest process, MB", "site, MB")
    return table(head, rows, right=(1, 2, 3))


def missed() -> str:
    """List the regressions whose commit ours does not name.

    Returns:
        A table with a row for each series.
    """
    rows = [
        (name, kind, f"`{known.split(': ')[0]}`", known.rsplit(": ", 1)[1])
        for name, found in _measured().items()
        for kind in ("confirmed", "listed")
        for known in found.get(kind, {}).get("ours", {}).get("not_named", [])
    ]
    return table(("history", "table", "series", "outcome"), rows)


def sources() -> str:
    """List the issues and pull requests that confirm regressions.

    Returns:
        A table with a row for each.
    """
    rows = [
        (name, f"[{address.split('/', 5)[-1]}]({address})", str(count))
        for name, address, count in _addresses()
    ]
    return table(("history", "confirmed in", "series"), rows, right=(2,))


def tables() -> str:
    """Say how many regressions the tables hold.

    Returns:
        Such as "40 series of 10 commits in 4 of 8 histories, and 122 labels in 3".
    """
    known, labels = confirmed(), listed()
    commits = len({one.guilty for one in known})
    histories, labelled = (len({one.history for one in found}) for found in (known, labels))
    return (
        f"{len(known)} series of {commits} commits in {histories} of {len(places())} histories, "
        f"and {len(labels)} labels in {labelled}"
    )


def _addresses() -> Iterator[tuple[str, str, int]]:
    found: dict[tuple[str, str], list[Known]] = {}
    for one in confirmed():
        found.setdefault((one.history, one.source), []).append(one)
    for (name, address), known in found.items():
        yield name, address, len(known)
