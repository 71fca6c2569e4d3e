"""Planted defects: those the gate found on a GPU, and those a history's report found."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from tools.docs.figures import scorecard
from tools.docs.figures.markdown import table
from tools.planted.branches import BRANCHES
from tools.planted.on_gpu import Row, kept
from tools.root import ROOT

_KEPT = ROOT / "tests" / "judge" / "data" / "planted_h200"
HISTORY = ROOT / "docs" / "results" / "data" / "demo.json"


@cache
def _rows() -> tuple[Row, ...]:
    return tuple(kept(BRANCHES, _KEPT))


@cache
def _history() -> dict[str, list[dict[str, Any]]]:
    document: dict[str, list[dict[str, Any]]] = json.loads(HISTORY.read_text(encoding="utf-8"))
    return document


def found_on_gpu() -> str:
    """Say how many defects the gate found with their cause.

    Returns:
        Such as "16 of 16".
    """
    defects = [row for row in _rows() if row.plant.cause]
    return f"{sum(row.right for row in defects)} of {len(defects)}"


def alarms_on_gpu() -> str:
    """Say how many harmless commits the gate flagged.

    Returns:
        Such as "0 of 4".
    """
    harmless = [row for row in _rows() if not row.plant.cause]
    return f"{sum(not row.right for row in harmless)} of {len(harmless)}"


def found_in_history() -> str:
    """Say how many planted changes of a history the report found with their cause.

    Returns:
        Such as "12 of 12".
    """
    planted = [row for row in _history()["rows"] if row["planted"]]
    return f"{sum(not row['mistakes'] for row in planted)} of {len(planted)}"


def alarms_in_history() -> str:
    """Say how many harmless commits of a history the report flagged.

    Returns:
        Such as "0 of 16".
    """
    harmless = [row for row in _history()["rows"] if not row["planted"]]
    return f"{sum(bool(row['mistakes']) for row in harmless)} of {len(harmless)}"


def defects_on_gpu() -> str:
    """Write the defects that were planted in our kernels and measured on a GPU.

    Returns:
        A table.
    """
    rows = [
        (row.plant.name, f"`{row.plant.workload}`", row.change, row.cause, f"{row.seconds:.0f}")
        for row in _rows()
        if row.plant.cause
    ]
    return table(["defect", "workload", "largest change", "cause named", "GPU s"], rows, right=[4])


def harmless_on_gpu() -> str:
    """Write the harmless commits that were measured on a GPU.

    Returns:
        A table.
    """
    rows = [
        (row.plant.name, f"`{row.plant.workload}`", row.found, row.change.strip("()"))
        for row in _rows()
        if not row.plant.cause
    ]
    return table(["harmless commit", "workload", "verdict", "smallest change it would see"], rows)


def changes_in_history() -> str:
    """Write the changes that were planted in a history and compiled without a GPU.

    Returns:
        A table.
    """
    rows = [
        (row["subject"], row["planted"], row["found"], " ".join(row["targets"]), row["cause"])
        for row in _history()["rows"]
        if row["planted"]
    ]
    return table(["subject of the commit", "planted", "found", "targets", "cause named"], rows)


def summary() -> str:
    """Write what Warpwatch finds, on planted changes and in recorded noise.

    Returns:
        A table of four rows, for a reader's first page. The hardest test comes first.
    """
    rows = [
        *((test, "simulated", found, alarms) for test, found, alarms in scorecard.summary()),
        ("defects planted in our kernels, judged as a pull request", "on an H200",
         found_on_gpu(), alarms_on_gpu()),
        ("changes planted in the history of a demo package", "without a GPU",
         found_in_history(), alarms_in_history()),
    ]  # fmt: skip
    return table(["test", "mode", "found", "false alarms"], rows)
