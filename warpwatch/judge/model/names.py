"""How the place and the parameters of a series read."""

from __future__ import annotations

from .core import SeriesKey


def params(key: SeriesKey) -> str:
    return ", ".join(key.params)


def home(key: SeriesKey) -> str:
    """Where a series was measured."""
    return f"{key.machine} / {key.environment}" if key.machine else key.environment
