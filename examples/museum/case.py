"""What an exhibit is: a kernel before and after, where it was reported, and what must be found."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

KERNELS = Path(__file__).parent / "kernels"


@dataclass(frozen=True)
class Edit:
    """The one place that reads ``old`` becomes ``new``."""

    old: str
    new: str


@dataclass(frozen=True)
class Case:
    """One exhibit. ``before`` and ``after`` are the edits that lead to either side, none where the
    file is that side as it stands; ``tritons`` are the versions of both sides, none for the
    installed one. It is compiled for ``targets`` and must be found on those of ``worse`` and on no
    other, with a ``cause`` (a regular expression) among what is said. ``missed`` says why an
    exhibit that the instrument cannot see is not found; it is empty for the others."""

    name: str
    title: str
    source: str
    file: str
    targets: tuple[str, ...]
    worse: tuple[str, ...]
    cause: str
    after: tuple[Edit, ...] = ()
    before: tuple[Edit, ...] = ()
    tritons: tuple[str, str] | None = None
    missed: str = ""


def edited(file: str, edits: tuple[Edit, ...]) -> str:
    """The text of a kernel's file with ``edits``; ``ValueError`` where one has no place of its
    own."""
    text = (KERNELS / file).read_text(encoding="utf-8")
    for one in edits:
        if text.count(one.old) != 1:
            times = text.count(one.old)
            raise ValueError(f"{file}: expected one place that reads {one.old!r}, found {times}")
        text = text.replace(one.old, one.new)
    return text
