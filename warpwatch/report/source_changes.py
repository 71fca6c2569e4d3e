"""The source that changed in the range of a finding, commit by commit, as git has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from warpwatch.judge.model.commits import patches

MOST_LINES = 400  # of one finding; a page is read by people
_LONGEST = 400  # characters of a line


@dataclass(frozen=True)
class SourceChange:
    """What one commit changed: files with added and removed lines, and the lines themselves.

    A line is its sign (``+``, ``-``, ``@`` for a place, ``f`` for a file, or a blank) and its text.
    """

    commit: str
    files: tuple[tuple[str, int, int], ...]
    lines: tuple[tuple[str, str], ...]
    left: int

    @property
    def added(self) -> int:
        """Lines that came."""
        return sum(added for _, added, _ in self.files)

    @property
    def removed(self) -> int:
        """Lines that went."""
        return sum(removed for _, _, removed in self.files)


def source_changes(
    repo: Path | None, commits: Sequence[str], folder: str
) -> tuple[SourceChange, ...]:
    """What commits changed below ``folder``, in the order given.

    Args:
        repo: The repository; nothing is known without one.
        commits: Hashes, the likeliest cause first: the first lines are shown of it.
        folder: Where the measured code lies, "" for everywhere.

    Returns:
        Those that changed something there; empty where git does not know them.
    """
    if repo is None or not commits:
        return ()
    try:
        found = patches(repo, commits, folder)
    except ValueError:
        return ()
    room, changes = MOST_LINES, []
    for commit in commits:
        patch = found.get(commit, "")
        if patch:
            changes.append(_parsed(commit, patch, room))
            room -= len(changes[-1].lines)
    return tuple(changes)


def _parsed(commit: str, patch: str, room: int) -> SourceChange:
    names: list[str] = []
    counts: list[tuple[int, int]] = []
    lines: list[tuple[str, str]] = []
    total, within = 0, False
    for line in patch.split("\n"):
        if line.startswith("diff --git "):
            within = False
            names.append(line.rpartition(" b/")[2])
            counts.append((0, 0))
            shown = ("f", names[-1])
        elif line.startswith("@@") and names:
            within = True
            shown = ("@", line)
        elif not within or line.startswith("\\"):
            continue
        else:
            sign = line[:1] if line[:1] in ("+", "-") else " "
            added, removed = counts[-1]
            counts[-1] = (added + (sign == "+"), removed + (sign == "-"))
            shown = (sign, line[1:])
        total += 1
        if len(lines) < room:
            lines.append((shown[0], shown[1][:_LONGEST]))
    files = tuple((name, *count) for name, count in zip(names, counts, strict=True))
    return SourceChange(commit, files, tuple(lines), total - len(lines))
