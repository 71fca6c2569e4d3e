"""Which findings were accepted: by whom, why, and until when; kept in git."""

from __future__ import annotations

import datetime
import json
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpwatch import project
from warpwatch.judge.model.core import Finding

SCHEMA_VERSION = 1
LONGEST_DAYS = 366
_IDENTITY = re.compile(r"[0-9a-f]{12}")
_KEYS = ("finding", "owner", "reason", "accepted", "expires")
_HEAD = f"""# Findings that were looked at and accepted. Written by `warpwatch accept` and reviewed
# like code: an accepted finding no longer fails a build until it expires.
schema_version = {SCHEMA_VERSION}
"""


@dataclass(frozen=True)
class Acceptance:
    """One accepted finding."""

    finding: str
    owner: str
    reason: str
    accepted: datetime.date
    expires: datetime.date

    def holds(self, today: datetime.date) -> bool:
        return today <= self.expires


def default_file() -> Path:
    """``reports/triage.toml`` of the project."""
    return project.folder() / "reports" / "triage.toml"


def load(path: Path | None = None) -> tuple[Acceptance, ...]:
    """Read ``path``, by default :func:`default_file`, which may be missing; ``ValueError`` lists
    every mistake."""
    if path is None:
        path = default_file()
        if not path.is_file():
            return ()
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{path}: cannot be read as TOML: {error}") from error
    mistakes = [f"{key}: unknown key" for key in data if key not in ("schema_version", "accepted")]
    if data.get("schema_version") != SCHEMA_VERSION:
        found = data.get("schema_version")
        mistakes.append(f"schema_version: expected {SCHEMA_VERSION}, got {found!r}")
    entries = data.get("accepted", [])
    if not isinstance(entries, list):
        mistakes.append(f"accepted: expected tables [[accepted]], got {entries!r}")
        entries = []
    acceptances = []
    for number, entry in enumerate(entries, start=1):
        wrong = _mistakes(entry)
        mistakes += [f"[[accepted]] {number}: {mistake}" for mistake in wrong]
        if not wrong:
            acceptances.append(Acceptance(**entry))
    names = [one.finding for one in acceptances]
    mistakes += [f"finding {name}: accepted twice" for name in sorted(set(names))
                 if names.count(name) > 1]  # fmt: skip
    if mistakes:
        raise ValueError(f"{path}: " + "; ".join(mistakes))
    return tuple(acceptances)


def accept(path: Path, *acceptances: Acceptance) -> None:
    """Append to a file; what ``load`` would refuse is refused, and nothing is written.

    Args:
        path: the file; it is made where it is missing.
        acceptances: what is accepted.

    Raises:
        ValueError: one is accepted already, or something is wrong with it.
    """
    there = path.is_file()
    known = {one.finding for one in load(path)} if there else set()
    text = "" if there else _HEAD
    for acceptance in acceptances:
        if acceptance.finding in known:
            raise ValueError(f"finding {acceptance.finding} is accepted already, in {path}")
        known.add(acceptance.finding)
        wrong = _mistakes(vars(acceptance))
        if wrong:
            raise ValueError("; ".join(wrong))
        text += (
            "\n[[accepted]]\n"
            f"finding = {json.dumps(acceptance.finding)}\n"
            f"owner = {_text(acceptance.owner)}\n"
            f"reason = {_text(acceptance.reason)}\n"
            f"accepted = {acceptance.accepted.isoformat()}\n"
            f"expires = {acceptance.expires.isoformat()}\n"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def remaining(
    findings: Iterable[Finding], acceptances: Iterable[Acceptance], today: datetime.date
) -> list[Finding]:
    """The findings that nobody accepted, or whose acceptance has expired."""
    holding = {one.finding for one in acceptances if one.holds(today)}
    return [finding for finding in findings if finding.identity not in holding]


def holding(today: datetime.date | None = None) -> dict[str, Acceptance]:
    """The acceptances that hold, by finding."""
    today = today or datetime.date.today()
    return {one.finding: one for one in load() if one.holds(today)}


def word(acceptance: Acceptance | None) -> str:
    """Who accepted a finding and why, for a reader; empty where nobody did."""
    if acceptance is None:
        return ""
    return f"accepted by {acceptance.owner} until {acceptance.expires}: {acceptance.reason}"


def _mistakes(entry: Any) -> list[str]:
    if not isinstance(entry, dict):
        return [f"expected a table, got {entry!r}"]
    found = [f"{key}: unknown key, expected one of {_KEYS}" for key in entry if key not in _KEYS]
    found += [f"{key}: is missing" for key in _KEYS if key not in entry]
    identity = entry.get("finding")
    if "finding" in entry and not (isinstance(identity, str) and _IDENTITY.fullmatch(identity)):
        found.append(f"finding: expected 12 hexadecimal digits, got {identity!r}")
    for key in ("owner", "reason"):
        value = entry.get(key)
        if key in entry and not (isinstance(value, str) and value.strip() and len(value) <= 2000):
            found.append(f"{key}: expected some text, got {value!r}")
    dates = []
    for key in ("accepted", "expires"):
        value = entry.get(key)
        if key not in entry:
            continue
        if type(value) is not datetime.date:
            found.append(f"{key}: expected a date such as 2026-01-31, got {value!r}")
        else:
            dates.append(value)
    if len(dates) == 2 and not 0 < (dates[1] - dates[0]).days <= LONGEST_DAYS:
        found.append(f"expires: expected 1 to {LONGEST_DAYS} days after accepted, got {dates[1]}")
    return found


def _text(value: str) -> str:
    """A TOML basic string: JSON's escapes are TOML's, but for the delete character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
