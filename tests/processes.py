"""Whether a process still runs, of which nothing but its number is known."""

from __future__ import annotations

import time
from pathlib import Path


def runs(pid: int | str) -> bool:
    """One that ended and was not waited for, as nobody may ever do in a container, does not."""
    try:
        stat = Path("/proc", str(pid), "stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(") ")[2][0] != "Z"


def ends(pid: int | str, within_s: float = 10.0) -> bool:
    """Whether it ends in this time."""
    until = time.monotonic() + within_s
    while runs(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not runs(pid)
