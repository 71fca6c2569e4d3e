"""The museum of regressions, from the rows of its last replay."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from examples.museum.cases import CASES
from examples.museum.harmless import HARMLESS
from tools.docs.figures.markdown import table
from tools.root import ROOT

FILE = ROOT / "docs" / "results" / "data" / "museum.json"


@cache
def _rows() -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))["rows"]
    return found


def _exhibits() -> list[Mapping[str, Any]]:
    return [row for row in _rows() if row["source"]]


def _right(row: Mapping[str, Any]) -> bool:
    return bool(row["found"] and row["cause"] and row["target"])


def summary() -> str:
    """Say how many exhibits are found, and how many harmless edits are flagged.

    Returns:
        Some sentences.
    """
    exhibits = _exhibits()
    edits = [row for row in _rows() if not row["source"]]
    right = sum(map(_right, exhibits))
    flagged = sum(not _right(row) for row in edits)
    return (
        f"The museum has {len(CASES)} exhibits, of which {len(exhibits)} have been replayed.\n"
        f"The instrument names {right} of these with their cause, and on no other target.\n"
        f"There are {len(HARMLESS)} harmless edits, of which {len(edits)} have been replayed.\n"
        f"The instrument flags {flagged} of these."
    )


def exhibits() -> str:
    """Write every exhibit.

    Returns:
        A table.
    """
    rows = []
    for row in _exhibits():
        said = row["said"].split("; ")[0].replace("|", "\\|")
        rows.append(
            (
                f"[{row['name']}]({row['source']})",
                row["title"],
                "yes" if row["found"] else "**no**",
                "yes" if row["cause"] else "**no**",
                "yes" if row["target"] else "**no**",
                " ".join(row["expected"]),
                said if len(said) <= 120 else f"{said[:117]}...",
            )
        )
    head = ["exhibit", "what happened", "found", "cause", "no other", "targets", "said first"]
    return table(head, rows)


def missed() -> str:
    """Write the exhibits that are not found or not replayed, each with its reason.

    Returns:
        A list, or a sentence where there is none.
    """
    known = {row["name"] for row in _rows()}
    lines = [
        f"- [{one.name}]({one.source}): not replayed for this page yet."
        for one in CASES
        if one.name not in known
    ]
    lines += [
        f"- [{row['name']}]({row['source']}): {row['missed'] or 'no reason is known'}."
        for row in _exhibits()
        if not _right(row)
    ]
    return "\n".join(lines) or "Every exhibit is found."
