"""What a library's own diff shows about each finding: ``checked.csv``, read strictly.

A finding joins the changes of one commit. Where several edits brought them, each edit has a row.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

COLUMNS = ("finding", "workloads", "commit", "true", "cause", "diff", "later")
EVERY = "*"
_FINDING = re.compile(r"[0-9a-f]{12}")
_COMMIT = re.compile(r"[0-9a-f]{8,40}")
_LINK = re.compile(r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull|commit)/[0-9a-f]+(#[\w-]+)?")


@dataclass(frozen=True)
class Label:
    """One row.

    Attributes:
        finding: The twelve digits of the finding.
        workloads: The workloads of the finding that it speaks of; ``*`` means all others.
        commit: The guilty commit as its diff shows it; empty where the finding is false.
        true: Whether the library's code did change so.
        cause: Whether the reason that the report names is the reason.
        diff: What the library's diff says, in our words.
        later: The address where its authors mended or explained it; empty where they did not.
    """

    finding: str
    workloads: tuple[str, ...]
    commit: str
    true: bool
    cause: bool
    diff: str
    later: str = ""

    def names(self, workloads: Iterable[str], rows: Sequence[Label]) -> list[str]:
        """The workloads of a finding that the row speaks of.

        Args:
            workloads: All of the finding.
            rows: All rows of the finding.

        Returns:
            Those that it names; with ``*``, also those that no row names.
        """
        others = {name for row in rows for name in row.workloads} if EVERY in self.workloads else ()
        return [
            one
            for one in workloads
            if one in self.workloads or (EVERY in self.workloads and one not in others)
        ]


def labels(path: Path) -> list[Label]:
    """Read the labels of a library.

    Args:
        path: ``checked.csv`` of its folder.

    Returns:
        Its rows; none where there is no such file yet.

    Raises:
        ValueError: Rows are malformed; all mistakes are listed with their line.
    """
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise ValueError(f"{path}: expected the columns {','.join(COLUMNS)}")
        rows = [(reader.line_num, row) for row in reader]
    mistakes = [f"line {line}: {said}" for line, row in rows for said in _mistakes(row)]
    given = Counter(
        (row["finding"], name) for _, row in rows for name in (row["workloads"] or "").split()
    )
    mistakes += [f"{name} of {one} has two rows" for (one, name), n in given.items() if n > 1]
    if mistakes:
        raise ValueError("\n".join(f"{path}: {one}" for one in mistakes))
    return [
        Label(
            finding=row["finding"],
            workloads=tuple(row["workloads"].split()),
            commit=row["commit"],
            true=row["true"] == "yes",
            cause=row["cause"] == "yes",
            diff=row["diff"],
            later=row["later"],
        )
        for _, row in rows
    ]


def _mistakes(row: dict[str, str]) -> list[str]:
    if None in row or None in row.values():
        return [f"expected {len(COLUMNS)} cells"]
    found = []
    if not _FINDING.fullmatch(row["finding"]):
        found.append(f"finding: expected twelve digits of a report, got {row['finding']!r}")
    if not row["workloads"].split():
        found.append(f"workloads: expected names with a space between, or {EVERY}, got nothing")
    for name in ("true", "cause"):
        if row[name] not in ("yes", "no"):
            found.append(f"{name}: expected yes or no, got {row[name]!r}")
    if row["true"] == "no" and row["cause"] == "yes":
        found.append("cause: a finding that is not true has no right cause")
    if (row["commit"] or row["true"] == "yes") and not _COMMIT.fullmatch(row["commit"]):
        found.append(f"commit: expected at least eight digits of a hash, got {row['commit']!r}")
    if not row["diff"].strip():
        found.append("diff: expected what the library's diff says, got nothing")
    if row["later"] and not _LINK.fullmatch(row["later"]):
        found.append(
            "later: expected the address of an issue, a pull request or a commit on GitHub, got "
            f"{row['later']!r}"
        )
    return found
