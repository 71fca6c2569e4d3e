"""Public Gluon kernels in the simulator, as ``tools.gluon.public_kernels --json`` counted them."""

from __future__ import annotations

import json
from typing import Any

from tools.root import ROOT

FILE = ROOT / "docs" / "results" / "data" / "public-kernels.json"


def summary() -> str:
    """Say how many kernels ran, and how many of the planted faults were found.

    Returns:
        Some sentences.
    """
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return (
        f"Under Triton {found['triton']} it ran {found['kernels']} kernels "
        f"of {found['files']} files.\n"
        f"False reports: {found['false_reports']}. Planted faults: {found['planted']}.\n"
        f"Of these, {found['found']} were found, and {found['explained']} cannot be, "
        "for a reason that the tool prints."
    )
