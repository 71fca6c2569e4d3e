"""A process that measures: what it is asked, what it answers, and its last words."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .stopping import end

DIED = "the measuring process ended: "


@dataclass
class Running:
    """A process and what it says, read as it comes: it must never wait for its reader."""

    process: subprocess.Popen[str]
    lines: queue.Queue[str | None] = field(default_factory=queue.Queue)
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        out, err = self.process.stdout, self.process.stderr
        threading.Thread(target=_pump, args=(out, self.lines), daemon=True).start()
        self._reader = threading.Thread(target=self.errors.extend, args=(err,), daemon=True)
        self._reader.start()

    def send(self, request: Mapping[str, Any], more: bool) -> None:
        """Send a request, the last one unless ``more`` may come."""
        assert self.process.stdin
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            if not more:
                self.process.stdin.close()
        except BrokenPipeError:
            pass  # it died at once; its last words are read later

    def last_word(self) -> str:
        self.process.wait(10)
        self._reader.join(5)
        return DIED + last_words(self.errors)

    def end(self) -> str:
        """What it had said on stderr."""
        end(self.process)
        self._reader.join(5)
        return "".join(self.errors)


def last_words(errors: Sequence[str]) -> str:
    words = [line.strip() for line in errors if line.strip()]
    return words[-1][:300] if words else "it said nothing"


def _pump(stream: Any, lines: queue.Queue[str | None]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)


def next_message(lines: queue.Queue[str | None], seconds: float) -> dict[str, Any] | None:
    """The worker's next message; ``None`` when it has ended, ``queue.Empty`` if none comes."""
    while (line := lines.get(timeout=seconds)) is not None:
        # Anything else is a profiler's own chatter, or half a line of a process that was killed.
        if line.startswith("{") and line.endswith("\n"):
            message: dict[str, Any] = json.loads(line)
            return message
    return None
