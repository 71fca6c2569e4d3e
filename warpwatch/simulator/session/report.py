"""Faults as people read them: what is wrong, in which lines, and the seed that brings it back."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from pathlib import Path

from warpwatch.simulator.errors import Fault, Learned, Site, UnknownWordError, is_users
from warpwatch.simulator.values.layouts import Layout

IN_KERNEL, IN_HOST = "error in the kernel", "error in the host code"


@dataclass(frozen=True)
class Report:
    """A fault of one run.

    ``sites`` are lines of the user's code, each with its part in the fault. ``word`` is the word
    that the simulator does not know, if that is what ended the run.
    """

    kind: str
    message: str
    sites: tuple[tuple[str, Site], ...]
    seed: int
    launch: str = ""
    word: str = ""

    @property
    def key(self) -> tuple[object, ...]:
        """The same for the same fault in another order."""
        lines = tuple((site.file, site.line) for _, site in self.sites)
        return (self.kind, lines, self.message if not lines else "")

    def lines(self) -> list[str]:
        """The report, line by line."""
        found = [f"{self.kind}: {self.message}"]
        found += [f"  {part}: {site}" for part, site in self.sites]
        if self.launch:
            found.append(f"  in {self.launch}")
        return [*found, f"  seed {self.seed}"]


def report_of(error: Exception, seed: int) -> Report:
    """Say what ended a run.

    Args:
        error: What the run raised.
        seed: The order it ran in.

    Returns:
        The report; of an error that is no fault, with the innermost line of the user's code.
    """
    launch = getattr(error, "launched", "")
    if isinstance(error, UnknownWordError):
        return Report(error.kind, str(error), error.sites, seed, launch, error.word)
    if isinstance(error, Fault):
        return Report(error.kind, str(error), error.sites, seed, launch)
    message = told(error)
    for kind in (*Learned.__subclasses__(), *Layout.__subclasses__()):
        message = message.replace(f"'{kind.__name__}'", f"'{kind.said}'")
    frames = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if is_users(frame.f_code.co_filename) and not _installed(frame.f_code.co_filename)
    ]
    sites = (("here", Site(*frames[-1])),) if frames else ()
    return Report(IN_KERNEL if launch else IN_HOST, message, sites, seed, launch)


def told(error: BaseException) -> str:
    """Say an error in one line.

    Args:
        error: Any.

    Returns:
        Its type and the first line of its message.
    """
    words = str(error).strip().splitlines() or ["no message"]
    return f"{type(error).__name__}: {words[0]}"


def _installed(file: str) -> bool:
    return "site-packages" in Path(file).parts
