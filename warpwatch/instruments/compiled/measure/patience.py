"""How long a job may take on processors that others use, too."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

_PROCESSES = Path("/proc")
_WAITS = 0.05  # share of a processor below which something waits, rather than lacks one
_HANGS = 0.9  # share of its seconds above which something hangs
_LONGEST = 10  # times as long on the clock as it may compute


@dataclass
class Allowance:
    """How long the job of a process may take: ``seconds`` of computing, until ``deadline`` if it
    has the processor for itself."""

    process: int
    seconds: float
    deadline: float = field(init=False)
    _began: float = field(init=False)
    _looked: float = field(init=False)
    _used: float = field(init=False, default=0.0)  # by its earlier jobs
    _seen: float = field(init=False, default=0.0)  # at the last look

    def __post_init__(self) -> None:
        self._began = self._looked = time.monotonic()
        self.deadline = self._began + self.seconds

    def begin(self) -> None:
        """Give the next job its time."""
        self.__post_init__()
        self._used = self._seen = processor_seconds(self.process)

    def is_extended(self) -> bool:
        """Whether the job lacked a processor, and now has more time."""
        now = time.monotonic()
        seen = processor_seconds(self.process, whole=True)
        lately = (seen - self._seen) / max(now - self._looked, 1e-3)
        more = more_seconds(self.seconds, seen - self._used, now - self._began, lately)
        self._looked, self._seen, self.deadline = now, seen, now + more
        return more > 0


def more_seconds(seconds: float, used: float, waited: float, lately: float) -> float:
    """Say how much longer a job may take that has no result yet.

    Args:
        seconds: How long it may compute.
        used: Processor seconds that it used so far; not finite where that is unknown.
        waited: Seconds since it began.
        lately: The share of a processor that it had since the last look.

    Returns:
        Seconds from now; 0 where it hangs or waits, rather than lacks a processor.

    Example:
        >>> more_seconds(120, 30.0, 120.0, 0.25), more_seconds(120, 119.0, 120.0, 0.99)
        (90.0, 0.0)
    """
    is_short = lately >= _WAITS and used < _HANGS * seconds and waited < _LONGEST * seconds
    return seconds - used if is_short else 0.0


def processor_seconds(session: int, *, whole: bool = False) -> float:
    """Read the processor time of a process and of those that it waited for.

    Args:
        session: The process, which leads a session of its own.
        whole: Add the processes of its session that still run.

    Returns:
        Seconds; not a number where the system does not say.
    """
    fields = _fields(session)
    if fields is None:
        return math.nan
    found = sum(map(int, fields[11:15]))
    if whole:
        for path in _PROCESSES.iterdir():
            if path.name.isdigit() and int(path.name) != session:
                other = _fields(int(path.name))
                if other is not None and int(other[3]) == session:
                    found += sum(map(int, other[11:15]))
    return found / os.sysconf("SC_CLK_TCK")


def _fields(process: int) -> list[str] | None:
    """What the system says of a process, after its name: state, parent, group, session, ..."""
    try:
        said = (_PROCESSES / str(process) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return said.rpartition(")")[2].split()
