"""What an installation takes, as ``python -m tools.docs.install_size`` measured it; what a push
waits for its verdict, as ``python -m tools.harness.first_verdict`` did."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from tools.docs.figures.markdown import megabytes, table
from tools.root import ROOT

_CPU = "asv,triton on torch's CPU build"
FILE = ROOT / "docs" / "results" / "data" / "install.json"
VERDICT_FILE = FILE.with_name("first-verdict.json")
_STEPS = {
    "install": "install torch, Triton and Warpwatch",
    "restore": "unpack the cached environment",
    "lane": "compile both commits and judge",
}


@cache
def _document(file: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return document


def _download(kind: str) -> str:
    return megabytes(sum(one["bytes"] for one in _document(FILE)[kind]["packages"]))


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
    measured = _document(FILE)
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


def first_verdict() -> str:
    """Write what a first push and a later one take, step by step.

    Returns:
        A table, in seconds.
    """
    measured = _document(VERDICT_FILE)
    first, cached = measured["first_steps_s"], measured["cached_steps_s"]

    def cell(steps: dict[str, float], name: str) -> str:
        return f"{steps[name]:.0f}" if name in steps else ""

    rows = [(words, cell(first, name), cell(cached, name)) for name, words in _STEPS.items()]
    rows.append(("all steps", f"{measured['first_s']:.0f}", f"{measured['cached_s']:.0f}"))
    head = ("step, in seconds", "first push", "environment in the cache")
    return table(head, rows, right=(1, 2))


def first_verdict_setting() -> str:
    """Say what was measured, and where.

    Returns:
        A sentence.
    """
    measured = _document(VERDICT_FILE)
    cache_size = megabytes(measured["cache_mb"] * 1e6)
    return (
        f"Measured with {measured['workloads']} workloads, {measured['targets']} targets and "
        f"{measured['cores']} cores, next to the packages. The cache holds {cache_size}."
    )


def first_verdict_install() -> str:
    """Say how long the installation takes where the packages are near.

    Returns:
        Such as "1.6 minutes".
    """
    return f"{_document(VERDICT_FILE)['first_steps_s']['install'] / 60:.1f} minutes"
