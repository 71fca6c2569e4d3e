"""How many compilers several runs at one time may have between them: one for each core.

Each run knows its own processes only. Where they share a folder of locks, a process is started once
it holds one of them; the system takes a lock back from whoever ends.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from warpwatch.config.package import SLOTS_VARIABLE

PATIENCE_SECONDS = 0.05


@dataclass(frozen=True)
class Slot:
    """A lock that is held, or leave to start where nobody counts."""

    file: int | None = None

    def give_back(self) -> None:
        """Let another run start a process."""
        if self.file is not None:
            fcntl.flock(self.file, fcntl.LOCK_UN)  # a fork may hold the same open file
            os.close(self.file)


def take() -> Slot | None:
    """Take a lock, if one is free.

    Returns:
        What is held until it is given back; ``None`` where all are taken.
    """
    folder = os.environ.get(SLOTS_VARIABLE)
    if not folder or not Path(folder).is_dir():
        return Slot()
    for number in range(len(os.sched_getaffinity(0))):
        file = os.open(Path(folder) / str(number), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
        else:
            return Slot(file)
    return None
