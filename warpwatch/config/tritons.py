"""Which versions of Triton launches can be recorded under."""

from __future__ import annotations

import re

OLDEST = (3, 5)  # the first whose compiler says what it left of a kernel, and when


def mistake(version: str) -> str:
    """Say whether a version is too old.

    Args:
        version: Such as ``3.4.0``.

    Returns:
        One line that names the oldest that serves; empty where this one does.

    Example:
        >>> mistake("3.9.0")
        ''
        >>> mistake("3.4.0")
        'triton 3.4.0: expected 3.5 or later, launches cannot be recorded under an older one'
    """
    if numbers(version) >= OLDEST:
        return ""
    oldest = ".".join(map(str, OLDEST))
    return (
        f"triton {version}: expected {oldest} or later, "
        "launches cannot be recorded under an older one"
    )


def numbers(version: str) -> tuple[int, int]:
    """The first two numbers of a version, for comparisons; beyond all where it has fewer."""
    found = [int(one) for one in re.findall(r"\d+", version)[:2]]
    return (found[0], found[1]) if len(found) == 2 else (1 << 30, 0)
