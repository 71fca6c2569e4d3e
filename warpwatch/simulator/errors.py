"""Errors that the simulator finds in a kernel, and the places of the kernel that they are about."""

from __future__ import annotations

import os
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import triton

# Frames of these folders are never the user's own; Python's holds installed packages, too.
_FOREIGN = (
    str(Path(__file__).resolve().parent) + os.sep,
    str(Path(triton.__file__).resolve().parent) + os.sep,
)
_PYTHON = sysconfig.get_path("stdlib") + os.sep
_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_known: dict[str, bool] = {}  # whether a file is the user's


@dataclass(frozen=True, slots=True)
class Site:
    """A line of the user's code."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.short}:{self.line}"

    @property
    def short(self) -> str:
        """The file from here on, where it is below the current folder."""
        try:
            near = os.path.relpath(self.file)
        except (OSError, ValueError):  # no current folder, or another drive
            return self.file
        return self.file if near.startswith("..") else near


def is_users(file: str) -> bool:
    """Say whether a file is the user's: not the simulator's, Triton's or Python's.

    Args:
        file: The name of the file, as a code object has it.

    Returns:
        Whether a report may name a line of it.
    """
    if file not in _known:
        pythons = file.startswith(_PYTHON) and not any(one in file for one in _PACKAGES)
        _known[file] = not (pythons or file.startswith(("<", *_FOREIGN)))
    return _known[file]


def here() -> Site:
    """Find the line of the user's code that runs.

    Returns:
        The innermost line that is not the simulator's own.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        users = _known.get(file)
        if users or (users is None and is_users(file)):
            key = (file, frame.f_lineno)
            found = _sites.get(key)
            if found is None:
                found = _sites[key] = Site(*key)
            return found
        frame = frame.f_back
    return NOWHERE


_sites: dict[tuple[str, int], Site] = {}
NOWHERE = Site("?", 0)


class Fault(AssertionError):  # noqa: N818  # its kinds are errors
    """A kernel does what it must not.

    Args:
        message: What is wrong, in a sentence.
        kind: The class of faults it belongs to, as reports name it.
        sites: Lines of the user's code, each with its part in the fault.
    """

    kind = "misuse"

    def __init__(
        self, message: str, kind: str = "", sites: tuple[tuple[str, Site], ...] = ()
    ) -> None:
        super().__init__(message)
        self.kind = kind or self.kind
        self.sites = sites or (("here", here()),)


class MisuseError(Fault):
    """The kernel does what Gluon or the hardware does not allow."""


class UnknownWordError(MisuseError):
    """The kernel uses a word that the simulator has not learned.

    Args:
        word: The word as the kernel says it.
    """

    kind = "unknown word"

    def __init__(self, word: str) -> None:
        super().__init__(f"{word} is not known to the simulator")
        self.word = word


class UnknownAttributeError(UnknownWordError, AttributeError):
    """The kernel uses a word of a value, as of a tensor, that the simulator has not learned."""


class Learned:
    """Values of a kernel: a word of theirs that is not here is not known."""

    __slots__ = ()
    said = "tensor"  # how kernels call such a value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise UnknownAttributeError(f"{self.said}.{name}")


class LaunchError(MisuseError):
    """Host code launches a kernel in a way that Triton refuses."""

    kind = "wrong launch"


class EndlessError(Fault):
    """A program takes more steps than it may."""

    kind = "endless loop"


class RaceError(Fault):
    """Two accesses, of which nothing says that one is done before the other."""

    kind = "race in shared memory"


class DeadlockError(Fault):
    """Everybody waits."""

    kind = "deadlock"
