"""The constants of the model of time: in use, measured on a card, and simulated."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from tools.microbenchmarks.results import table_of
from tools.root import ROOT

FILE = ROOT / "docs" / "results" / "data" / "microbenchmarks.json"


@cache
def _document() -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def summary() -> str:
    """Say where the constants were measured and how near the model is.

    Returns:
        Some sentences.
    """
    rows = _document()["rows"]
    measured = [row for row in rows if row["measured"] is not None]
    if not measured:
        return f"There are {len(rows)} programs. No card has run them yet."
    both = [row for row in measured if row["simulated"]]
    near = sum(abs(row["simulated"] / row["measured"] - 1) <= 0.1 for row in both)
    return (
        f"There are {len(rows)} programs. {_document()['card']} ran {len(measured)} of them.\n"
        f"The model simulates {len(both)} of these. "
        f"It is within 10 % of the measured value for {near}."
    )


def every() -> str:
    """Write every constant.

    Returns:
        A table.
    """
    return table_of(_document())
