"""What an installation takes, as ``python -m tools.docs.install_size`` measured it."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from tools.docs.figures.markdown import megabytes, table
from tools.root import ROOT

_CPU = "asv,triton on torch's CPU build"
FILE = ROOT / "docs" / "results" / "data" / "install.json"


@cache
def _measured() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return document


def _download(kind: str) -> str:
    return megabytes(sum(one["bytes"] for one in _measured()[kind]["packages"]))


def of_base() -> str:
    """Say how much the light base downloads.

    Returns:
        Such as "55 MB".
    """
    return _download("base")


def of_all() -> str:
    """Say how much the base with asv and Triton downloads from the public index.

    Returns:
        Such as "2.8 GB".
    """
    return _download("asv,triton")


def of_cpu_build() -> str:
    """Say how much the same downloads with torch's CPU build.

    Returns:
        Such as "0.5 GB".
    """
    return _download(_CPU)


def sizes() -> str:
    """Write what each installation takes.

    Returns:
        A table.
    """
    measured = _measured()
    base, everything, small = (measured[kind] for kind in ("base", "asv,triton", _CPU))
    rows = [
        (
            "`warpwatch`",
            "reads results, writes reports",
            str(len(base["packages"])),
            of_base(),
            megabytes(base["disk_bytes"]),
        ),
        (
            "`warpwatch[asv,triton]`",
            "measures, with or without a GPU",
            str(len(everything["packages"])),
            of_all(),
            "not measured",
        ),
        (
            "the same, torch's CPU build",
            "measures without a GPU",
            str(len(small["packages"])),
            of_cpu_build(),
            megabytes(small["disk_bytes"]),
        ),
    ]
    head = ["install", "what it does", "packages", "download", "on disk"]
    return table(head, rows, right=[2, 3, 4])
